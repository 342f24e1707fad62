"""What waits to be sent to one peer, and what a slow one loses. Pure."""

from collections import deque
from typing import NamedTuple


class EnqueueResult(NamedTuple):
    """What has become of an event, and of those that waited."""

    is_full: bool
    """It must not be lost, and there is no room: the peer cannot be served any more."""
    lost: int
    """Events that were dropped: this one, or others that made room for it."""


class FrameQueue:
    """Frames in order, ``limit`` bytes of them at most; a single one may be larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[tuple[bytes, bool]] = deque()
        """Each with whether it may be dropped."""
        self._droppable_size = 0
        self.size = 0
        """Bytes that wait."""

    def __len__(self) -> int:
        return len(self._frames)

    def has_room(self, size: int) -> bool:
        """Whether a frame of that size may be put in."""
        return not self._frames or self.size + size <= self._limit

    def put(self, frame: bytes) -> None:
        """Add a frame, whatever waits already."""
        self._add(frame, is_droppable=False)

    def offer(self, frame: bytes, *, is_droppable: bool) -> EnqueueResult:
        """Add an event where there is room; one that must not be lost takes that of those that may."""
        lost = 0
        if not self.has_room(len(frame)):
            if is_droppable:
                return EnqueueResult(is_full=False, lost=1)
            lost = self._drop_droppable()
            if not self.has_room(len(frame)):
                return EnqueueResult(is_full=True, lost=lost)
        self._add(frame, is_droppable=is_droppable)
        return EnqueueResult(is_full=False, lost=lost)

    def _add(self, frame: bytes, *, is_droppable: bool) -> None:
        self._frames.append((frame, is_droppable))
        self.size += len(frame)
        self._droppable_size += len(frame) if is_droppable else 0

    def _drop_droppable(self) -> int:
        """All that may be dropped; how many they were."""
        if not self._droppable_size:
            return 0
        before = len(self._frames)
        self._frames = deque(waiting for waiting in self._frames if not waiting[1])
        self.size -= self._droppable_size
        self._droppable_size = 0
        return before - len(self._frames)

    def pop_batch(self, size: int) -> list[bytes]:
        """The next frames: those that fit into ``size`` bytes, and one at least where there is one."""
        taken: list[bytes] = []
        while self._frames and (not taken or len(self._frames[0][0]) <= size):
            frame, is_droppable = self._frames.popleft()
            taken.append(frame)
            size -= len(frame)
            self.size -= len(frame)
            self._droppable_size -= len(frame) if is_droppable else 0
        return taken

    def clear(self) -> None:
        """Drop what waits: the peer has disconnected."""
        self._frames.clear()
        self.size = self._droppable_size = 0
