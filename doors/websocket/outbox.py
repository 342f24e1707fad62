"""What waits to be sent to one peer, and what a slow one loses. Pure."""

from collections import deque
from enum import Enum, auto

__all__ = ["Outbox", "Verdict"]


class Verdict(Enum):
    """What has become of an event."""

    TAKEN = auto()
    DROPPED = auto()
    FULL = auto()
    """It must not be lost, and there is no room: the peer cannot be served any more."""


class Outbox:
    """Frames in order, ``limit`` bytes of them at most; a single one may be larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self.size = 0
        """Bytes that wait."""

    def __len__(self) -> int:
        return len(self._frames)

    def has_room(self, size: int) -> bool:
        """Whether a frame of that size may be put in."""
        return not self._frames or self.size + size <= self._limit

    def put(self, frame: bytes) -> None:
        """Add a frame, whatever waits already."""
        self._frames.append(frame)
        self.size += len(frame)

    def offer(self, frame: bytes, *, is_droppable: bool) -> Verdict:
        """Add an event where there is room."""
        if self.has_room(len(frame)):
            self.put(frame)
            return Verdict.TAKEN
        if not is_droppable:
            return Verdict.FULL
        return Verdict.DROPPED

    def take(self) -> bytes:
        """The next frame."""
        frame = self._frames.popleft()
        self.size -= len(frame)
        return frame

    def clear(self) -> None:
        """Nobody will hear what waits."""
        self._frames.clear()
        self.size = 0
