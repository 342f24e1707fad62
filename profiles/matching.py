"""Match levels: how well a live worker's profile fits what a session asks for, and if it does not, why."""

from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property
from itertools import zip_longest

from profiles.profile import CapabilityProfile, Resources, SoftArgs

_SHOWN_CHARACTERS = 60


class MatchLevel(IntEnum):
    """Best first. ``BOUND`` is the session's own worker."""

    BOUND = 0
    EXACT = 1
    HARD = 2
    SOFT_SUPERSET = 3
    NONE = 9

    @cached_property
    def label(self) -> str:
        """The name in counters, status and explanations."""
        return self.name.lower()


def match(have: CapabilityProfile, have_soft: SoftArgs, want: CapabilityProfile) -> MatchLevel:
    """How well a worker of profile ``have``, whose soft arguments now are ``have_soft``, serves ``want``.

    Never BOUND: who is bound to whom is not the profile's to know. On HARD and SOFT_SUPERSET the worker must be
    brought to ``want.soft`` first. That cannot be done where the session wants the worker's own default and the
    worker was given something else, or another provider's: its state is unknown, so that is NONE, not a wrong
    model.
    """
    if have.hard_signature != want.hard_signature or not have.resources.contains(want.resources):
        return MatchLevel.NONE
    if not can_reconcile(have_soft, want.soft):
        return MatchLevel.NONE
    if have.resources != want.resources:
        return MatchLevel.SOFT_SUPERSET
    return MatchLevel.EXACT if have_soft == want.soft else MatchLevel.HARD


def surplus(have: CapabilityProfile, want: CapabilityProfile) -> int:
    """How many resources the worker has that the session did not ask for."""
    return sum(len(set(more) - set(less)) for _, more, less in _resource_pairs(have.resources, want.resources))


def first_difference(have: CapabilityProfile, want: CapabilityProfile, have_soft: SoftArgs | None = None) -> str:
    """The first thing, in words, that sets a worker apart from what is wanted; ``""`` where nothing does.

    What rules a worker out comes first: role, cwd, dialect, command, hard arguments, environment, missing resources, a
    default that cannot be restored; then what only costs a step: soft arguments, surplus resources. Environment
    variables appear by name, their values never. ``have_soft`` is what the worker has now, where that has changed.
    """
    return next(_differences(have, want, have.soft if have_soft is None else have_soft), "")


def _differences(have: CapabilityProfile, want: CapabilityProfile, have_soft: SoftArgs) -> Iterator[str]:
    for name in ("role", "cwd", "dialect"):
        yield from _plain_difference(name, getattr(have, name), getattr(want, name))
    yield from _argument_difference("command", have.command, want.command)
    yield from _argument_difference("arguments", have.hard_args, want.hard_args)
    yield from (f"{name}: the worker has another value" for name in sorted(dict({*have.declared} ^ {*want.declared})))
    yield from _env_difference(dict(have.env), dict(want.env))
    for kind, more, less in _resource_pairs(have.resources, want.resources):
        if missing := [name for name in less if name not in more]:
            yield f"{kind}: the worker lacks {_quote(missing[0])}"
    lost = _unreconcilable(have_soft, want.soft)
    if lost is not None and getattr(want.soft, lost) is None:
        yield f"{lost}: the worker was set to {_quote(getattr(have_soft, lost))}, wanted its own default"
    for name in SoftArgs.__struct_fields__:
        yield from _plain_difference(name, getattr(have_soft, name), getattr(want.soft, name))
    for kind, more, less in _resource_pairs(have.resources, want.resources):
        if extra := [name for name in more if name not in less]:
            yield f"{kind}: the worker also has {_quote(extra[0])}"
        elif more != less:
            yield f"{kind}: the same in another order"


def _plain_difference(name: str, have: str | None, want: str | None) -> Iterator[str]:
    if have != want:
        yield f"{name}: the worker has {_quote(have)}, wanted {_quote(want)}"


def _argument_difference(name: str, have: tuple[str, ...], want: tuple[str, ...]) -> Iterator[str]:
    for position, (mine, wanted) in enumerate(zip_longest(have, want)):
        if mine != wanted:
            flag = have[position - 1] if position and have[position - 1].startswith("-") else ""
            where = f"{name}, after {flag}" if flag else name
            yield f"{where}: the worker has {_quote(mine)}, wanted {_quote(wanted)}"
            return


def _env_difference(have: dict[str, str], want: dict[str, str]) -> Iterator[str]:
    for name in sorted(have.keys() | want.keys()):
        if name not in have:
            yield f"environment: the worker lacks {name}"
        elif name not in want:
            yield f"environment: the worker also has {name}"
        elif have[name] != want[name]:
            yield f"environment: {name} has another value"


def _resource_pairs(have: Resources, want: Resources) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    yield "skills", have.skills, want.skills
    yield "extensions", have.extensions, want.extensions
    yield "prompt templates", have.prompt_templates, want.prompt_templates


def can_reconcile(have: SoftArgs | None, want: SoftArgs) -> bool:
    """Whether a worker with ``have`` (None = unknown) can be brought to ``want``.

    A default (None) that was changed cannot be restored, nor can the default model of another provider be asked for.
    Where the state is unknown, all must be named; a program with modes and options of its own has no provider, so that
    none of its workers is used on with a mode that was refused half-way.
    """
    if have is None:
        return None not in (want.provider, want.model, want.thinking)
    return have == want or _unreconcilable(have, want) is None


def _unreconcilable(have: SoftArgs, want: SoftArgs) -> str | None:
    """The name of a soft argument that was set on the worker and is wanted at the worker's own default.

    Or that of the provider, where another one's default model is wanted: a live worker is given models by name.
    """
    for name in SoftArgs.__struct_fields__:
        if getattr(want, name) is None and getattr(have, name) is not None:
            return name
    return "provider" if want.model is None and want.provider != have.provider else None


def _quote(value: str | None) -> str:
    if value is None:
        return "none"
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[: _SHOWN_CHARACTERS - 1] + "…")
