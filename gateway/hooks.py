"""Hooks of the gateway: operators' functions that hear of what happens, loaded from files and packages and called here.

They come from the Python file that ``gateway.hooks`` names and from entry points of the group ``pool.hooks`` (each a
module, or one function). A function says by its decorator which events it is for, and takes what happened as its only
argument::

    import trio
    from gateway.hooks import Drop, hook

    @hook("message:received")
    def tidy(message):
        if message.text.startswith("#"):
            return Drop("a note to self")
        return message.text.replace("colour", "color")

    @hook("command:new", "command:reset")
    async def log(command):
        await trio.Path("resets.log").write_text(command.session)

Plain functions run in a thread, ``async`` ones (trio's) in the event loop, where they must not block. Those of entry
points come first, by name, then those of the file in their order; of one event one after the other. A hook that raises,
takes longer than five seconds or returns what makes no sense costs a warning and counts as if it had said nothing.
Of a reply they see what is delivered at its end, and each part where parts are asked for; not the stream of its pieces.

============================  ===========================  ==========================================================
event                         argument                     what may be returned (None: nothing)
============================  ===========================  ==========================================================
``agent:bootstrap``           ``AgentBootstrap``           a text for the system prompt, ``ExcludeFiles``, or a list
``command:new|reset|stop``    ``CommandReceived``          -
``gateway:start|stop``        ``GatewayLifecycle``         -
``session:start|end``         ``SessionLifecycle``         -
``message:received|sending``  ``HookMessage``              the text to go on with, or ``Drop(reason)``
``message:sent``              ``HookMessage``              -
============================  ===========================  ==========================================================
"""

import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import trio

from errors import UsageError
from gateway.hook_types import (
    AgentBootstrap,
    CommandReceived,
    Drop,
    ExcludeFiles,
    GatewayLifecycle,
    HookMessage,
    HookName,
    HookTable,
    SessionLifecycle,
    hook,
    names_of,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "AgentBootstrap",
    "CommandReceived",
    "Drop",
    "ExcludeFiles",
    "GatewayLifecycle",
    "HookMessage",
    "HookRunner",
    "SessionLifecycle",
    "hook",
    "installed_hooks",
    "load_hooks",
]

ENTRY_POINT_GROUP = "pool.hooks"
_MODULE = "pool_gateway_hooks"
"""What the file is called among Python's modules; dataclasses and pickles look there."""

HookCallable = Callable[..., Any]


def installed_hooks() -> "list[EntryPoint]":
    """The hooks that installed packages bring along, by name."""
    if not any(map(_names_hooks, sys.path)):
        return []
    from importlib.metadata import entry_points  # noqa: PLC0415  # a tenth of the start, and few have such packages

    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def _names_hooks(directory: str) -> bool:
    """Whether a package that is installed there may bring hooks."""
    files = Path(directory).glob("*.[de]*-info/entry_points.txt")
    return any(ENTRY_POINT_GROUP.encode() in file.read_bytes() for file in files if os.access(file, os.R_OK))


def load_hooks(file: Path | None, packages: "Iterable[EntryPoint]" = ()) -> HookTable:
    """Import everything and find the functions decorated with ``hook``.

    Runs the operator's code and blocks while it does. Raises UsageError, with file, line and reason, for code that
    cannot be imported, for a function that cannot take one argument, and where there is no hook at all.
    """
    found = [function for point in packages for function in _load_package(point)]
    found += _load_file(file) if file is not None else []
    table: dict[HookName, tuple[HookCallable, ...]] = {}
    for function in dict.fromkeys(found):
        for name in names_of(function):
            table[name] = (*table.get(name, ()), function)
    return table


def _load_package(point: "EntryPoint") -> list[HookCallable]:
    origin = f"the entry point {point.name} ({point.value})"
    try:
        loaded = point.load()
    except (Exception, SystemExit) as exc:  # whatever a hook file raises while it is imported
        raise UsageError(f"cannot load the gateway's hooks from {origin}: {_describe(exc)}") from exc
    return _check_hooks([loaded] if names_of(loaded) else _find_decorated(loaded), origin)


def _load_file(path: Path) -> list[HookCallable]:
    path = path.expanduser()
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    before = sys.modules.get(_MODULE)
    sys.modules[_MODULE] = module
    try:
        exec(_compile(path), vars(module))  # noqa: S102 - running the operator's file is what is asked for
        return _check_hooks(_find_decorated(module), str(path))
    except (Exception, SystemExit) as exc:  # whatever the file raises
        del sys.modules[_MODULE]
        if before is not None:
            sys.modules[_MODULE] = before
        if isinstance(exc, UsageError):
            raise
        # the line of the file that failed, however deep the error was raised
        lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(path)]
        place = f"{path}:{lines[-1]}" if lines else str(path)
        raise UsageError(f"cannot load the gateway's hooks: {place}: {_describe(exc)}") from exc


def _compile(path: Path) -> CodeType:
    """The file's code; compiled here, since Python's own cache takes two edits within a second for one."""
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as exc:
        raise UsageError(f"cannot read the gateway's hooks: {path}: {exc.strerror}") from exc
    except (SyntaxError, ValueError) as exc:
        place = f"{path}:{getattr(exc, 'lineno', None) or 1}"
        raise UsageError(f"cannot load the gateway's hooks: {place}: {getattr(exc, 'msg', None) or exc}") from exc


def _find_decorated(module: object) -> list[HookCallable]:
    return [value for value in vars(module).values() if names_of(value)] if isinstance(module, ModuleType) else []


def _check_hooks(hooks: list[HookCallable], origin: str) -> list[HookCallable]:
    if not hooks:
        raise UsageError(
            f"there are no hooks in {origin}; decorate functions with @hook(...) of gateway.hooks, or leave it out"
        )
    for function in hooks:
        prefix = f"cannot use the gateway's hooks: {location_of(function)}: {hook_name(function)} must"
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise UsageError(f"{prefix} take one argument, what happened") from None
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(f"{prefix} return its answer, not yield it")
    return hooks


def hook_name(hook: HookCallable) -> str:
    """What to call a hook in messages."""
    return getattr(hook, "__qualname__", type(hook).__qualname__)


def location_of(hook: HookCallable) -> str:
    """Where a hook is written: ``file:line`` if known."""
    code = getattr(inspect.unwrap(hook), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(hook)


def _describe(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}".rstrip(": ")


Warn = Callable[[str, dict[str, Any]], None]
"""Takes a sentence and its facts (``hook``, ``place``, ``event``); must not raise."""

_CALL_TIMEOUT = 5.0
_MAX_THREADS = 8
"""Calls of one plain function that are waited for at once."""
_MAX_OVERDUE_THREADS = 4
"""Threads that may be lost to one function; then it is left out until one of them comes back."""


class Bootstrap(NamedTuple):
    """Additions to the system prompt, and the context files to leave out (None: all)."""

    texts: list[str]
    left_out: list[str] | None


class HookRunner:
    """The hooks as the gateway uses them. Everything may be called from any number of tasks at once.

    A cancelled caller waits for nothing: an ``async`` hook is cancelled with it, a thread is left to itself.
    """

    def __init__(self, hooks: HookTable, warn: Warn, *, limit: float = _CALL_TIMEOUT) -> None:
        self._warn = warn
        self._limit = limit
        self.table: dict[HookName, list[_HookFunction]] = {}
        """The hooks by event; an event without hooks is not in it."""
        self.replace(hooks)

    def replace(self, hooks: HookTable) -> None:
        """Use other hooks from now on; calls under way end as they began."""
        known: dict[Callable[..., Any], _HookFunction] = {}
        self.table = {
            name: [known.setdefault(function, _HookFunction(function)) for function in functions]
            for name, functions in hooks.items()
            if functions
        }

    async def notify(self, name: HookName, event: msgspec.Struct) -> None:
        """Call the hooks of an event one after the other; what they return is ignored."""
        for each in self.table.get(name, ()):
            await self._call(each, name, event)

    async def filter(
        self, name: Literal["message:received", "message:sending"], message: HookMessage
    ) -> HookMessage | Drop:
        """The message as the hooks leave it; each is shown what those before it made of it, the first Drop counts."""
        for each in self.table.get(name, ()):
            match await self._call(each, name, message):
                case None:
                    pass
                case Drop() as drop:
                    return drop
                case str(text):
                    message = msgspec.structs.replace(message, text=text)
                case other:
                    self._report(each, name, f"returned {type(other).__name__}, not a text, a Drop or None")
        return message

    async def bootstrap(self, event: AgentBootstrap) -> Bootstrap:
        """The texts for the system prompt, without empty ones, and the context files to be left out."""
        said: list[str | ExcludeFiles] = []
        for each in self.table.get("agent:bootstrap", ()):
            answer = await self._call(each, "agent:bootstrap", event)
            items = answer if isinstance(answer, list) else [] if answer is None else [answer]
            if all(isinstance(item, str | ExcludeFiles) for item in items):
                said += items
            else:
                what = f"returned {type(answer).__name__}, not texts, an ExcludeFiles or None"
                self._report(each, "agent:bootstrap", what)
        texts = [item.strip() for item in said if isinstance(item, str) and item.strip()]
        left_out = [item.files for item in said if isinstance(item, ExcludeFiles)]
        return Bootstrap(texts, None if () in left_out else sorted({file for files in left_out for file in files}))

    async def _call(self, hook: "_HookFunction", name: HookName, event: msgspec.Struct) -> Any:
        """What the hook returns; None after a warning where it went wrong."""
        if hook.is_stuck:
            self._report(hook, name, f"was left out: {_MAX_OVERDUE_THREADS} earlier calls of it have not ended")
            return None
        scope = trio.move_on_after(self._limit)
        try:
            with scope:
                return await hook.call(event)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever the operator's function raises
            self._report(hook, name, f"raised {type(exc).__name__}: {exc}")
        except BaseExceptionGroup as group:
            ours, theirs = group.split((trio.Cancelled, KeyboardInterrupt))
            if theirs is not None:
                self._report(hook, name, f"raised {theirs!r}")
            if ours is not None:
                raise ours from None
        if scope.cancelled_caught:
            self._report(hook, name, f"took longer than {self._limit:g} s")
        return None

    def _report(self, hook: "_HookFunction", name: HookName, what: str) -> None:
        facts = {"hook": hook_name(hook.function), "place": location_of(hook.function), "event": name}
        self._warn(f"the hook {facts['hook']} ({facts['place']}) for {name} {what}", facts)


class _HookFunction:
    """One function with the threads that run it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._callers = trio.CapacityLimiter(_MAX_THREADS)
        self._threads = trio.CapacityLimiter(math.inf)
        """Only counts: a token comes back when its thread ends, even if its caller was cancelled."""

    @property
    def is_stuck(self) -> bool:
        """Whether too many abandoned threads still run it."""
        return self._threads.borrowed_tokens - self._callers.borrowed_tokens >= _MAX_OVERDUE_THREADS

    async def call(self, event: msgspec.Struct) -> Any:
        """Call it where it belongs, and wait for its answer."""
        if self._is_async:
            return await self.function(event)
        async with self._callers:
            return await trio.to_thread.run_sync(self.function, event, abandon_on_cancel=True, limiter=self._threads)
