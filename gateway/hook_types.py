"""Hook names, arguments and answers. Hooks import them from ``gateway.hooks``."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from router.source import MessageSource

HookName = Literal[
    "agent:bootstrap",
    "command:new",
    "command:reset",
    "command:stop",
    "gateway:start",
    "gateway:stop",
    "session:start",
    "session:end",
    "message:received",
    "message:sending",
    "message:sent",
]
HOOK_NAMES: tuple[HookName, ...] = get_args(HookName)

_MARK = "__pool_hooks__"
HookT = TypeVar("HookT", bound=Callable[..., Any])


class AgentBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The system prompt of an agent in a role is being put together; ``workspace`` is a directory."""

    agent: str
    role: str
    workspace: str


class ExcludeFiles(msgspec.Struct, frozen=True):
    """Returned for ``agent:bootstrap``: the agent does not read these context files (``AGENTS.md``).

    Without files it reads none at all. Relative paths begin in the workspace. Programs of dialect ``pi`` read all or
    none: any ``ExcludeFiles`` means none.
    """

    files: tuple[str, ...] = ()


class CommandReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command for the session. ``source`` is None unless it came from a channel."""

    command: Literal["new", "reset", "stop"]
    session: str
    source: MessageSource | None = None


class GatewayLifecycle(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway takes requests from now on, or no longer; its own files are in ``data_dir``."""

    data_dir: str


class SessionLifecycle(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation starts (``first message``, ``held``, ``reset``) or ends (``reset``, ``deleted``, ``moved``).

    ``transcript``: the file of the conversation that is over.
    """

    session: str
    agent: str
    role: str
    reason: str
    transcript: str | None = None


class HookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way to the agent (received), or a reply on its way to a person (sending) or there (sent)."""

    session: str
    text: str
    source: MessageSource | None = None
    run_id: str | None = None


class Drop(msgspec.Struct, frozen=True):
    """Returned by a hook: the message goes no further. Its sender gets the ``reason``, if there is one to get it."""

    reason: str = ""


def hook(*names: HookName) -> Callable[[HookT], HookT]:
    """Have the decorated function called at these events. Raises ValueError for a name that is none."""
    unknown = [name for name in names if name not in HOOK_NAMES]
    if unknown or not names:
        said = f"there is no hook {unknown[0]!r}" if unknown else "no event is named"
        raise ValueError(f"{said}; there are: {', '.join(HOOK_NAMES)}")

    def mark(function: HookT) -> HookT:
        setattr(function, _MARK, tuple(dict.fromkeys((*names, *names_of(function)))))
        return function

    return mark


def names_of(function: object) -> tuple[HookName, ...]:
    """The events a function was decorated for; none for any other object."""
    names = vars(function).get(_MARK, ()) if hasattr(function, "__dict__") else ()
    return names if callable(function) else ()


HookTable = Mapping[HookName, tuple[Callable[..., Any], ...]]
"""The functions of each event, in the order in which they are called; events without any may be missing."""
