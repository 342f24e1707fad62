"""The writing side of one WebSocket: what waits for it, what is on its way, and its last words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from doors.limits import OutputShare
from doors.websocket.outbox import Offer, Outbox

_PIECE_BYTES = 64 * 1024
"""Frames that wait are sent together, up to so much."""
_MOST_REASON = 120
"""Bytes of a close frame's reason."""
Send = Callable[[Sequence[bytes], Callable[[], object]], Awaitable[None]]
Close = Callable[[dict[str, Any]], Awaitable[None]]


class Sender:
    """``send`` is ``Peer.send_messages``; ``close`` is ASGI's. Everything that waits is charged to ``share``."""

    def __init__(self, send: Send, close: Close, limit: int, share: OutputShare) -> None:
        self._send = send
        self._close = close
        self._outbox = Outbox(limit)
        self._little = limit // 4
        """What may wait when whoever offers events goes on."""
        self._share = share
        self._on_its_way = 0
        self._without_room = 0
        """Bytes of answers that wait for room."""
        self._is_blocked = False
        """The peer does not read what is on its way."""
        self._ending: tuple[int, str] | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._moved = trio.lowlevel.ParkingLot()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def put(self, frame: bytes) -> None:
        """Add an answer, waiting while there is no room."""
        if not self._outbox.has_room(len(frame)):
            await self._wait_for_room(frame)
        self.put_nowait(frame)

    async def _wait_for_room(self, frame: bytes) -> None:
        self._without_room += len(frame)
        try:
            self._charge()
            while not self._outbox.has_room(len(frame)) and self._ending is None:
                await self._moved.park()
        finally:
            self._without_room -= len(frame)

    def put_nowait(self, frame: bytes) -> None:
        """Add a frame whatever waits already; after the end it is forgotten."""
        if self._ending is None:
            self._outbox.put(frame)
            self._changed()

    def offer(self, frame: bytes, *, is_droppable: bool) -> Offer:
        """Add an event where there is room for it."""
        if self._ending is not None:
            return Offer(is_full=False, lost=0)
        offer = self._outbox.offer(frame, is_droppable=is_droppable)
        self._changed()
        return offer

    async def keep_up(self) -> None:
        """Wait until little is left to send, or it is the peer that does not take it: nobody else waits for that."""
        while self._outbox.size > self._little and not self._is_blocked and self._ending is None:
            await self._moved.park()

    def end(self, code: int, reason: str, *, at_once: bool = False) -> None:
        """Close once what waits has been sent, or with nothing more than what is on its way."""
        if at_once:
            self._outbox.clear()
        self._ending = self._ending or (code, reason)
        self._changed()
        self._moved.unpark_all()

    def _changed(self) -> None:
        self._charge()
        self._news.unpark()

    def _charge(self) -> None:
        self._share.charge(self._outbox.size + self._on_its_way + self._without_room)

    # --- out ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what comes until the end, close, return."""
        try:
            while self._outbox or self._ending is None:
                if self._outbox:
                    await self._send_some()
                else:
                    await self._news.park()
            code, reason = self._ending
            short = reason.encode()[:_MOST_REASON].decode(errors="ignore")
            await self._close({"type": "websocket.close", "code": code, "reason": short})
        finally:
            self._ending = self._ending or (0, "")
            self._outbox.clear()
            self._share.charge(0)
            self._moved.unpark_all()

    async def _send_some(self) -> None:
        frames = self._outbox.take(_PIECE_BYTES)
        self._on_its_way = sum(map(len, frames))
        self._moved.unpark_all()
        try:
            await self._send(frames, self._block)
        finally:
            self._on_its_way = 0
            self._is_blocked = False
            self._charge()

    def _block(self) -> None:
        self._is_blocked = True
        self._moved.unpark_all()
