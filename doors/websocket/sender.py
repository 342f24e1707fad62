"""The writing side of one WebSocket: what waits for it, what a slow peer loses, and its last words."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import trio

from doors.budgets import OutputShare

_BATCH_BYTES = 64 * 1024
"""Frames that wait are sent together, up to so much."""
_MOST_REASON = 120
"""Bytes of a close frame's reason."""
SendMessages = Callable[[Sequence[bytes], Callable[[], object]], Awaitable[None]]
SendClose = Callable[[dict[str, Any]], Awaitable[None]]


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


class FrameSender:
    """``send`` is ``Peer.send_messages``; ``close`` is ASGI's. Everything that waits is charged to ``share``."""

    def __init__(self, send: SendMessages, close: SendClose, limit: int, share: OutputShare) -> None:
        self._send = send
        self._close = close
        self._queue = FrameQueue(limit)
        self._low_water = limit // 4
        """What may wait when the hub goes on."""
        self._share = share
        self._sending_bytes = 0
        self._waiting_bytes = 0
        """Bytes of answers that wait for room."""
        self._is_blocked = False
        """The peer does not read what is on its way."""
        self._close_reason: tuple[int, str] | None = None
        self._wakeup = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def put(self, frame: bytes) -> None:
        """Add an answer, waiting while there is no room."""
        if not self._queue.has_room(len(frame)):
            await self._wait_for_room(frame)
        self.put_nowait(frame)

    async def _wait_for_room(self, frame: bytes) -> None:
        self._waiting_bytes += len(frame)
        try:
            self._charge()
            while not self._queue.has_room(len(frame)) and self._close_reason is None:
                await self._progress.park()
        finally:
            self._waiting_bytes -= len(frame)

    def put_nowait(self, frame: bytes) -> None:
        """Add a frame whatever waits already; after the end it is forgotten."""
        if self._close_reason is None:
            self._queue.put(frame)
            self._changed()

    def offer(self, frame: bytes, *, is_droppable: bool) -> EnqueueResult:
        """Add an event where there is room for it."""
        if self._close_reason is not None:
            return EnqueueResult(is_full=False, lost=0)
        offer = self._queue.offer(frame, is_droppable=is_droppable)
        self._changed()
        return offer

    async def wait_drained(self) -> None:
        """Wait until little is left to send, or the peer is what blocks it."""
        while self._queue.size > self._low_water and not self._is_blocked and self._close_reason is None:
            await self._progress.park()

    def close(self, code: int, reason: str, *, at_once: bool = False) -> None:
        """Close once what waits has been sent, or with nothing more than what is on its way."""
        if at_once:
            self._queue.clear()
        self._close_reason = self._close_reason or (code, reason)
        self._changed()
        self._progress.unpark_all()

    def _changed(self) -> None:
        self._charge()
        self._wakeup.unpark()

    def _charge(self) -> None:
        self._share.charge(self._queue.size + self._sending_bytes + self._waiting_bytes)

    # --- out ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what comes until the end, close, return."""
        try:
            while self._queue or self._close_reason is None:
                if self._queue:
                    await self._send_some()
                else:
                    await self._wakeup.park()
            code, reason = self._close_reason
            short = reason.encode()[:_MOST_REASON].decode(errors="ignore")
            await self._close({"type": "websocket.close", "code": code, "reason": short})
        finally:
            self._close_reason = self._close_reason or (0, "")
            self._queue.clear()
            self._share.charge(0)
            self._progress.unpark_all()

    async def _send_some(self) -> None:
        frames = self._queue.pop_batch(_BATCH_BYTES)
        self._sending_bytes = sum(map(len, frames))
        self._progress.unpark_all()
        try:
            await self._send(frames, self._on_blocked)
        finally:
            self._sending_bytes = 0
            self._is_blocked = False
            self._charge()

    def _on_blocked(self) -> None:
        self._is_blocked = True
        self._progress.unpark_all()
