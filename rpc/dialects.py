"""The dialects by the names that agent definitions use."""

from collections.abc import Callable

from errors import UsageError
from rpc.dialect import Dialect
from rpc.settings import RpcSettings


def _make_native(_settings: RpcSettings, **_of_pi: object) -> Dialect:
    from rpc.native import NativeDialect  # noqa: PLC0415 - a supervisor of pi workers never needs it

    return NativeDialect()


def _make_pi(settings: RpcSettings, *, allow_bash: bool, attended: Callable[[], bool], in_memory: bool) -> Dialect:
    from rpc.pi.dialect import PiDialect  # noqa: PLC0415 - and the other way round

    return PiDialect(settings, allow_bash=allow_bash, attended=attended, in_memory=in_memory)


_FACTORIES: dict[str, Callable[..., Dialect]] = {"native": _make_native, "pi": _make_pi}
DIALECTS = tuple(_FACTORIES)
"""The names, for settings to check against."""


def no_listener() -> bool:
    """No listener is there to answer a dialog."""
    return False


def make_dialect(
    name: str,
    *,
    settings: RpcSettings,
    allow_bash: bool,
    attended: Callable[[], bool] = no_listener,
    in_memory: bool = False,
) -> Dialect:
    """A fresh dialect for one worker process.

    ``allow_bash`` says whether the worker's profile has the tool ``bash``, ``in_memory`` whether it was started to
    keep no conversation; ``attended`` is asked whether a front end is there to answer dialogs. Raises UsageError for an
    unknown name.
    """
    maker = _FACTORIES.get(name)
    if maker is None:
        raise UsageError(f"there is no dialect {name!r}; known are {', '.join(DIALECTS)}")
    return maker(settings, allow_bash=allow_bash, attended=attended, in_memory=in_memory)
