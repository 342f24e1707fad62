"""Makes a dialect by its name: ``rpc.NAME`` is imported when a worker first needs it, and its ``make`` is called."""

from collections.abc import Callable
from importlib import import_module

from errors import UsageError
from rpc.dialect import Dialect
from rpc.settings import RpcSettings


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
    try:
        make: Callable[..., Dialect] = import_module(f"rpc.{name}").make
    except (ImportError, AttributeError) as exc:
        raise UsageError(f"there is no dialect {name!r}") from exc
    return make(settings, allow_bash=allow_bash, attended=attended, in_memory=in_memory)
