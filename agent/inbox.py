"""What waits for the running turn: steers for its next model call, follow-ups for its end."""

from collections import deque

from agent.output import Output
from wire.messages import TextParams

__all__ = ["Inbox", "InboxFull"]


class InboxFull(Exception):
    """Too many inputs wait already."""


class Inbox:
    """Two bounded queues; every change is told by a ``queue_update`` event."""

    def __init__(self, output: Output, limit: int) -> None:
        self._output = output
        self._limit = limit
        self._steers: deque[TextParams] = deque()
        self._follow_ups: deque[TextParams] = deque()

    def __len__(self) -> int:
        return len(self._steers) + len(self._follow_ups)

    def steer(self, text: TextParams) -> None:
        """For the next model call. Raises InboxFull."""
        self._put(self._steers, text)

    def follow_up(self, text: TextParams) -> None:
        """For when the turn would have ended. Raises InboxFull."""
        self._put(self._follow_ups, text)

    def take_steers(self) -> list[TextParams]:
        """All that wait, oldest first."""
        taken = list(self._steers)
        self._steers.clear()
        if taken:
            self._tell()
        return taken

    def take_follow_up(self) -> TextParams | None:
        """The oldest one."""
        if not self._follow_ups:
            return None
        taken = self._follow_ups.popleft()
        self._tell()
        return taken

    def has_steers(self) -> bool:
        """Whether a model call would find something new."""
        return bool(self._steers)

    def clear(self) -> int:
        """Throw everything away; how much it was."""
        count = len(self)
        self._steers.clear()
        self._follow_ups.clear()
        if count:
            self._tell()
        return count

    def _put(self, queue: deque[TextParams], text: TextParams) -> None:
        if len(queue) >= self._limit:
            raise InboxFull
        queue.append(text)
        self._tell()

    def _tell(self) -> None:
        self._output.event("queue_update", {"steers": len(self._steers), "follow_ups": len(self._follow_ups)})
