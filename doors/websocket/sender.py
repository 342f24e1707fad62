"""The writing side of one WebSocket: what waits for it, what is on its way, and its last words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from doors.budgets import OutputShare
from doors.websocket.frame_queue import EnqueueResult, FrameQueue

_BATCH_BYTES = 64 * 1024
"""Frames that wait are sent together, up to so much."""
_MOST_REASON = 120
"""Bytes of a close frame's reason."""
SendMessages = Callable[[Sequence[bytes], Callable[[], object]], Awaitable[None]]
SendClose = Callable[[dict[str, Any]], Awaitable[None]]


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
