"""Calling hooks: each within its time, none of them the end of anything."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
import trio

from gateway.hook_files import hook_name, place_of
from gateway.hooks import AgentBootstrap, Drop, HookName, HookTable, LeaveOut, MessageSeen

__all__ = ["Bootstrap", "HookRunner", "Warn"]

Warn = Callable[[str, dict[str, Any]], None]
"""Takes a sentence and its facts (``hook``, ``place``, ``event``); must not raise."""

_LIMIT = 5.0
_THREADS = 8
"""Calls of one plain function that are waited for at once."""
_MOST_OVERDUE = 4
"""Threads that may be lost to one function; then it is left out until one of them comes back."""


class Bootstrap(NamedTuple):
    """Additions to the system prompt, and the context files to leave out (None: all)."""

    texts: list[str]
    left_out: list[str] | None


class HookRunner:
    """The hooks as the gateway uses them. Everything may be called from any number of tasks at once.

    A cancelled caller waits for nothing: an ``async`` hook is cancelled with it, a thread is left to itself.
    """

    def __init__(self, hooks: HookTable, warn: Warn, *, limit: float = _LIMIT) -> None:
        self._warn = warn
        self._limit = limit
        self._hooks: dict[HookName, list[_Hook]] = {}
        self.replace(hooks)

    def replace(self, hooks: HookTable) -> None:
        """Use other hooks from now on; calls under way end as they began."""
        known: dict[Callable[..., Any], _Hook] = {}
        self._hooks = {
            name: [known.setdefault(function, _Hook(function)) for function in functions]
            for name, functions in hooks.items()
        }

    def has(self, name: HookName) -> bool:
        """Whether anybody wants to hear of it: without, an event need not even be made."""
        return bool(self._hooks.get(name))

    async def notify(self, name: HookName, event: msgspec.Struct) -> None:
        """Tell everybody, one after the other; what they return is ignored."""
        for hook in self._hooks.get(name, ()):
            await self._call(hook, name, event)

    async def filter(
        self, name: Literal["message:received", "message:sending"], message: MessageSeen
    ) -> MessageSeen | Drop:
        """The message as the hooks leave it; each is shown what those before it made of it, the first Drop counts."""
        for hook in self._hooks.get(name, ()):
            match await self._call(hook, name, message):
                case None:
                    pass
                case Drop() as drop:
                    return drop
                case str(text):
                    message = msgspec.structs.replace(message, text=text)
                case other:
                    self._complain(hook, name, f"returned {type(other).__name__}, not a text, a Drop or None")
        return message

    async def bootstrap(self, event: AgentBootstrap) -> Bootstrap:
        """The texts for the system prompt, without empty ones, and the context files to be left out."""
        said: list[str | LeaveOut] = []
        for hook in self._hooks.get("agent:bootstrap", ()):
            answer = await self._call(hook, "agent:bootstrap", event)
            items = answer if isinstance(answer, list) else [] if answer is None else [answer]
            if all(isinstance(item, str | LeaveOut) for item in items):
                said += items
            else:
                what = f"returned {type(answer).__name__}, not texts, a LeaveOut or None"
                self._complain(hook, "agent:bootstrap", what)
        texts = [item.strip() for item in said if isinstance(item, str) and item.strip()]
        left_out = [item.files for item in said if isinstance(item, LeaveOut)]
        return Bootstrap(texts, None if () in left_out else sorted({file for files in left_out for file in files}))

    async def _call(self, hook: "_Hook", name: HookName, event: msgspec.Struct) -> Any:
        """What the hook returns; None after a warning where it went wrong."""
        if hook.is_stuck:
            self._complain(hook, name, f"was left out: {_MOST_OVERDUE} earlier calls of it have not ended")
            return None
        scope = trio.move_on_after(self._limit)
        try:
            with scope:
                return await hook.call(event)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever the operator's function raises
            self._complain(hook, name, f"raised {type(exc).__name__}: {exc}")
        except BaseExceptionGroup as group:
            ours, theirs = group.split((trio.Cancelled, KeyboardInterrupt))
            if theirs is not None:
                self._complain(hook, name, f"raised {theirs!r}")
            if ours is not None:
                raise ours from None
        if scope.cancelled_caught:
            self._complain(hook, name, f"took longer than {self._limit:g} s")
        return None

    def _complain(self, hook: "_Hook", name: HookName, what: str) -> None:
        facts = {"hook": hook_name(hook.function), "place": place_of(hook.function), "event": name}
        self._warn(f"the hook {facts['hook']} ({facts['place']}) for {name} {what}", facts)


class _Hook:
    """One function with the threads that run it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._callers = trio.CapacityLimiter(_THREADS)
        self._threads = trio.CapacityLimiter(math.inf)
        """Only counts: a token comes back when its thread ends, whether or not anybody still waits for it."""

    @property
    def is_stuck(self) -> bool:
        """Whether too many threads that nobody waits for any more still run it."""
        return self._threads.borrowed_tokens - self._callers.borrowed_tokens >= _MOST_OVERDUE

    async def call(self, event: msgspec.Struct) -> Any:
        """Call it where it belongs, and wait for its answer."""
        if self._is_async:
            return await self.function(event)
        async with self._callers:
            return await trio.to_thread.run_sync(self.function, event, abandon_on_cancel=True, limiter=self._threads)
