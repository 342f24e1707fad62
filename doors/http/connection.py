"""One TCP connection of the HTTP port: bytes in and out with a deadline for each step, and the tasks of its requests.

Hypercorn speaks HTTP on it; the socket is ours, so that a peer that does not read, write or leave costs no more than
its own connection, and only for a limited time. Received messages wait for their endpoint in a bounded queue.
"""

import logging
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from starlette.types import ASGIApp

from doors.http.access import TokenIdentity
from doors.http.limits import ConnectionCost, Rank, run_metered
from doors.http.protocol import HttpProtocol, ServerContext

_DISCONNECT_TYPES = frozenset({"http.disconnect", "websocket.disconnect"})


class ReceiveQueue:
    """ASGI's messages for one endpoint; pieces of a body that wait are joined.

    ``put`` waits while ``limit`` bytes wait, until the endpoint takes them, has ended, or the peer is gone.
    """

    __slots__ = ("_end", "_has_ended", "_limit", "_messages", "_room", "_size", "_taker")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[dict[str, Any]] = deque()
        self._size = 0
        self._end: dict[str, Any] | None = None
        self._has_ended = False
        self._taker = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def put(self, message: Any) -> None:
        """Add a message; the last one, that the peer is gone, does not wait."""
        if message["type"] in _DISCONNECT_TYPES:
            self._end = message
            self._taker.unpark()
            self._room.unpark_all()
            return
        await trio.lowlevel.checkpoint()
        while self._size >= self._limit and self._end is None and not self._has_ended:
            await self._room.park()
        if not self._has_ended:
            self._add(message)
            self._taker.unpark()

    def _add(self, message: dict[str, Any]) -> None:
        self._size += len(message.get("body") or message.get("bytes") or message.get("text") or b"")
        if message["type"] != "http.request":
            self._messages.append(message)
        elif self._messages:
            self._messages[-1]["body"] += message["body"]
            self._messages[-1]["more_body"] = message["more_body"]
        else:
            self._messages.append({**message, "body": bytearray(message["body"])})

    async def receive(self) -> dict[str, Any]:
        """The next message: ASGI's ``receive``. Once the peer is gone it says so each time it is asked."""
        await trio.lowlevel.checkpoint()
        while not self._messages:
            if self._end is not None:
                return self._end
            await self._taker.park()
        message = self._messages.popleft()
        self._size = 0 if not self._messages else self._size - len(message.get("bytes") or message.get("text") or b"")
        if message["type"] == "http.request":
            message["body"] = bytes(message["body"])
        self._room.unpark_all()
        return message

    def close(self) -> None:
        """The endpoint has ended: nothing waits for it any more."""
        self._has_ended = True
        self._messages.clear()
        self._room.unpark_all()


_CHUNK_BYTES = 64 * 1024
_ANONYMOUS_CHUNK_BYTES = 1024
"""Read at once of a peer that has shown no token: at most some hundred frames before others have their turn."""
_RESET = struct.pack("ii", 1, 0)
"""Closing the socket forgets what the kernel still holds for the peer."""
_LINGER_SECONDS = 2.0
_LINGER_PAUSE_SECONDS = 0.01
"""Between pieces of what a peer without a token still sends: 25 MB come through a usual receive buffer in that time."""
_LINGER_BYTES = 32 * 1024 * 1024
_logger = logging.getLogger("pool.http")


def _do_nothing() -> None:
    """The event has no receiver."""


class HttpConnection:
    """Serves one accepted socket, which does not block, from ``run`` to its end."""

    def __init__(
        self,
        sock: socket.socket,
        addresses: tuple[Any, Any],
        context: ServerContext,
        expense: ConnectionCost,
        *,
        on_rank: Callable[["HttpConnection", Rank], None],
    ) -> None:
        """``addresses``: the peer's and ours. ``on_rank`` hears how the connection stands whenever that changes."""
        self._sock = sock
        self._cost = expense
        self._settings = context.services.settings
        self._on_rank = on_rank
        self._identity: TokenIdentity | None = None
        self._is_busy = False
        self._has_begun = False
        self._is_disconnected = False
        self._lingers = False
        self.has_stalled = False
        self._reading = trio.CancelScope(deadline=trio.current_time() + self._settings.header_timeout)
        self._writing = trio.Lock()
        self._nursery: trio.Nursery
        self._protocol = HttpProtocol(context, self, {"peer": self}, addresses, self._on_protocol_event)

    @property
    def identity(self) -> TokenIdentity | None:
        """Whose token the current, or the last, request has shown."""
        return self._identity

    @identity.setter
    def identity(self, identity: TokenIdentity | None) -> None:
        self._identity = identity
        if identity is not None:
            self._cost.refund()
            self._protocol.set_max_message_size(int(self._settings.max_body))
        self._report_rank()

    def _report_rank(self) -> None:
        if self._is_disconnected:
            return
        known = Rank.BUSY if self._is_busy else Rank.IDLE
        self._on_rank(self, Rank.ANONYMOUS if self._identity is None else known)

    async def run(self) -> None:
        """Serve until the peer leaves, breaks the rules or takes too long, or the surrounding scope is cancelled."""
        self._report_rank()
        try:
            async with trio.open_nursery() as self._nursery:
                with self._reading:
                    await self._read()
                await self._protocol.handle(Closed())
            if self._lingers and not self._is_disconnected:
                await self._linger()
        finally:
            self._sock.close()

    def abort(self) -> None:
        """End it now, whatever it does."""
        self._is_disconnected = True
        self._nursery.cancel_scope.cancel()

    def close_when_idle(self) -> None:
        """The server ends: take no further request; one that is on may end."""
        if not self._is_busy:
            self._reading.cancel()

    async def send_messages(self, messages: Sequence[bytes], on_blocked: Callable[[], object]) -> None:
        """Implements ``ClientConnection.send_messages``."""
        await self._write(self._protocol.encode_messages(messages), on_blocked)

    # --- bytes in -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while data := await self._receive(_CHUNK_BYTES if self._cost.is_settled else _ANONYMOUS_CHUNK_BYTES):
            if not self._is_busy and not self._has_begun:
                self._has_begun = True
                self._reading.deadline = trio.current_time() + self._settings.header_timeout
            await self._protocol.handle(RawData(data))
            await self._cost.pause()

    async def _receive(self, most: int) -> bytes:
        """What has arrived; nothing at the end."""
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            await self._cost.acquire()
            try:
                return self._sock.recv(most)
            except BlockingIOError:
                continue
            except OSError:
                self._is_disconnected = True
                return b""

    async def _linger(self) -> None:
        """Pass over what the peer is still sending: closing in the middle of it would destroy the answer on its way."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has gone
        left = _LINGER_BYTES
        with trio.move_on_after(_LINGER_SECONDS):
            while left > 0 and (data := await self._receive(_CHUNK_BYTES)):
                left -= len(data)
                await self._cost.pause(_LINGER_PAUSE_SECONDS)

    # --- what the protocol wants --------------------------------------------------------------------------------------

    async def _on_protocol_event(self, event: Event) -> None:
        match event:
            case RawData(data=data):
                await self._write(data)
            case Updated(idle=idle):
                self._set_busy(not idle)
            case Closed():
                self._lingers = not self._protocol.has_no_partial_request
                self._reading.cancel()

    def _set_busy(self, is_busy: bool) -> None:  # noqa: FBT001  # it is what the name asks
        self._is_busy = is_busy
        self._has_begun = False
        seconds = float("inf") if is_busy else self._settings.idle_timeout
        self._reading.deadline = trio.current_time() + seconds
        self._report_rank()

    async def _write(self, data: bytes, on_blocked: Callable[[], object] = _do_nothing) -> None:
        async with self._writing:
            rest = memoryview(data)
            try:
                while rest and not self._is_disconnected:
                    rest = await self._write_some(rest, on_blocked)
            finally:
                self._is_disconnected |= len(rest) > 0  # whatever came after half a piece would make no sense

    async def _write_some(self, rest: memoryview, on_blocked: Callable[[], object]) -> memoryview:
        try:
            return rest[self._sock.send(rest) :]
        except BlockingIOError:
            on_blocked()
            await self._wait_writable()
        except OSError:
            self._disconnect()
        return rest

    async def _wait_writable(self) -> None:
        with trio.move_on_after(self._settings.write_stall) as scope:
            await trio.lowlevel.wait_writable(self._sock)
        if scope.cancelled_caught:
            self.has_stalled = True
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._disconnect()

    def _disconnect(self) -> None:
        """The peer does not read any more: end the reader, which ends the requests."""
        self._is_disconnected = True
        self._reading.cancel()

    # --- the application's tasks --------------------------------------------------------------------------------------

    async def spawn_app(
        self, app: ASGIApp, _config: object, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        """Hypercorn's way to start the application for a request; returns where its messages go."""
        inbox = ReceiveQueue(_CHUNK_BYTES)
        self._nursery.start_soon(self._run_app, app, scope, inbox, send)
        await trio.lowlevel.checkpoint()
        return inbox.put

    async def _run_app(
        self, app: ASGIApp, scope: Any, inbox: ReceiveQueue, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        try:
            await run_metered(app(scope, inbox.receive, send), self._cost)
        except BaseExceptionGroup as group:
            cancelled, defects = group.split(trio.Cancelled)
            if defects is not None:
                _logger.exception("%s failed", scope["path"], exc_info=defects)
            if cancelled is not None:
                raise cancelled from None
        except Exception:  # a defect met by one request must not end the others
            _logger.exception("%s failed", scope["path"])
        finally:
            inbox.close()
            await send(None)
