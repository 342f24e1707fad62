"""Handlers of single events: called in the events' order, one event after the other, each on its own risk."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from errors import UsageError
from wire.envelope import Channel, EventEnvelope

__all__ = ["Handler", "Listeners"]

Handler: TypeAlias = Callable[[EventEnvelope], None]

_PROGRESS = frozenset({"run:accepted", "run:start", "done", "text_chunk", "think_chunk", "reply"})
_PROGRESS_FAMILIES = ("tool:", "compaction:")
_logger = logging.getLogger("pool.gateway.events")


class Listeners:
    """Handlers by type of event; control and monitor events only."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}
        self._waiting: deque[EventEnvelope] = deque()
        self._is_telling = False
        self.failures = 0

    def __len__(self) -> int:
        return sum(map(len, self._handlers.values()))

    def on(self, type_: str, handler: Handler) -> Callable[[], None]:
        """Call ``handler`` for each event of the type; what is returned undoes it, any number of times."""
        if type_ in _PROGRESS or type_.startswith(_PROGRESS_FAMILIES):
            raise UsageError(f"{type_} is a progress event: those are read with a cursor, not with a handler")
        # a registration is an object of its own: the same function may be registered twice and undone once
        registered: list[Handler] = [handler]

        def call(event: EventEnvelope) -> None:
            for each in registered:
                each(event)

        self._handlers.setdefault(type_, []).append(call)

        def undo() -> None:
            if registered:
                registered.clear()
                self._remove(type_, call)

        return undo

    def _remove(self, type_: str, call: Handler) -> None:
        handlers = self._handlers[type_]
        handlers.remove(call)
        if not handlers:
            del self._handlers[type_]

    def tell(self, event: EventEnvelope) -> None:
        """An event can be seen. What a handler publishes is told after the event that it was called for."""
        if event.type not in self._handlers or event.channel is Channel.PROGRESS:
            return
        self._waiting.append(event)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._waiting:
                self._tell_all(self._waiting.popleft())
        finally:
            self._is_telling = False

    def _tell_all(self, event: EventEnvelope) -> None:
        for handler in tuple(self._handlers.get(event.type, ())):
            try:
                handler(event)
            except Exception:
                self.failures += 1
                _logger.exception("a handler of %s events raised at seq %d", event.type, event.seq)
