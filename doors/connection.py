"""One connection of the control socket: its requests run side by side, its answers and events leave through one outbox.

Whatever the peer sends or fails to read ends at most this connection. What it makes the supervisor hold is bounded:
the unfinished line, the requests in flight, the bytes it has not read.
"""

import logging
import select
from typing import Any, Protocol

import msgspec
import trio

from doors.frames import Incoming, RefusedFrame, decode_request, encode_error, encode_event, encode_result
from doors.outbox import Outbox, PeerGone
from doors.texts import single_cause
from errors import InternalError, PoolClosed, PoolError, PoolSaturated, ProtocolViolation, UsageError
from gateway.handlers import Emit
from wire.framing import LineFramer
from wire.units import ByteCount, Seconds

__all__ = ["Connection", "ControlLimits", "Emit", "Handlers", "InputBudget"]

_CHUNK_BYTES = 64 * 1024
_FREE_INPUT_BYTES = 64 * 1024
_logger = logging.getLogger("pool.control")


class Handlers(Protocol):
    """What stands behind the door: a method name and undecoded parameters in, something JSON can hold out."""

    async def call(self, method: str, params: msgspec.Raw, emit: Emit) -> Any:
        """Run a method; raises PoolError for what the caller is to be told."""
        ...


class ControlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one peer, and all peers together, may make the supervisor hold."""

    max_connections: int = 512
    max_frame_bytes: ByteCount = ByteCount(8 * 1024 * 1024)
    max_requests: int = 64
    """Requests of one connection in flight; further ones are not read until one has ended."""
    max_refused: int = 100
    """Lines in a row which are no request; one more ends the connection."""
    input_bytes: ByteCount = ByteCount(64 * 1024 * 1024)
    """All connections' unfinished lines and requests in flight, beyond the first 64 KiB of each."""
    out_buffer_bytes: ByteCount = ByteCount(256 * 1024)
    """Bytes that wait for one peer; its requests wait when there are more."""
    write_stall: Seconds = Seconds(30)
    """A peer that takes no byte for this long, while some wait for it, is cut off."""
    flush_grace: Seconds = Seconds(1)
    """How long the last words of a closing connection may take."""


class InputBudget:
    """What all connections together may hold of large requests."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    def move(self, difference: int) -> bool:
        """Take more, or give back where negative; False when more is used than there is."""
        self._used += difference
        return self._used <= self._limit


class Connection:
    """Serves one accepted socket from ``run`` to its end."""

    def __init__(
        self, stream: trio.SocketStream, handlers: Handlers, limits: ControlLimits, budget: InputBudget
    ) -> None:
        self._stream = stream
        self._handlers = handlers
        self._limits = limits
        self._budget = budget
        self._framer = LineFramer(limits.max_frame_bytes)
        self._outbox = Outbox(stream.socket, limit=limits.out_buffer_bytes, stall=limits.write_stall)
        self._slots = trio.Semaphore(limits.max_requests)
        self._in_flight: dict[str | int, int] = {}
        self._none_in_flight = trio.Event()
        self._refused_in_a_row = 0
        self._charged = 0
        self._is_lost = False

    async def run(self) -> None:
        """Serve until the peer leaves, breaks the rules, or the surrounding scope is cancelled.

        Requests in flight end with the connection; where the peer may still listen, it is told.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                await self._read(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self._budget.move(-self._charged)
            await self._say_last_words()

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            await self._outbox.send_forever()
        except PeerGone:
            self._is_lost = True
            scope.cancel()

    async def _say_last_words(self) -> None:
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._limits.flush_grace
            if not self._is_lost:
                try:
                    await self._outbox.flush()
                except PeerGone:
                    self._is_lost = True
        self._stream.socket.close()

    # --- requests in ------------------------------------------------------------------------------------------------

    async def _read(self, nursery: trio.Nursery) -> None:
        try:
            while chunk := await self._receive():
                for line in self._framer.feed(chunk):
                    if line and not line.isspace():
                        await self._accept(line, nursery)
                self._charge()
        except ProtocolViolation:
            limit = self._limits.max_frame_bytes
            text = f"the request is too large: one request, its prompt included, may have {limit} bytes"
            self._outbox.put_nowait(encode_error(None, UsageError(text)))
        except PoolSaturated as exc:
            self._outbox.put_nowait(encode_error(None, exc))
        except RefusedFrame as exc:
            self._outbox.put_nowait(encode_error(exc.request_id, exc))
        else:
            await self._wind_up()

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.socket.recv(_CHUNK_BYTES))
        except OSError:
            return b""

    async def _wind_up(self) -> None:
        """The peer sends no more. One that only closed its sending side still gets the answers it waits for."""
        if _has_hung_up(self._stream.socket.fileno()):
            self._is_lost = True
        elif self._in_flight:
            self._none_in_flight = trio.Event()
            await self._none_in_flight.wait()

    def _charge(self) -> None:
        held = self._framer.pending_bytes + sum(self._in_flight.values())
        share = max(0, held - _FREE_INPUT_BYTES)
        difference, self._charged = share - self._charged, share
        if not self._budget.move(difference) and difference > 0:
            self._budget.move(-self._charged)  # at once: nobody else is to be refused for what goes now
            self._charged = 0
            raise PoolSaturated("the supervisor holds too many large requests at the moment", retry_after=1.0)

    async def _accept(self, line: bytes, nursery: trio.Nursery) -> None:
        try:
            request = self._decode(line)
        except RefusedFrame as exc:
            await self._refuse(exc)
            return
        self._refused_in_a_row = 0
        await self._slots.acquire()
        self._in_flight[request.id] = len(line)
        nursery.start_soon(self._serve, request)

    def _decode(self, line: bytes) -> Incoming:
        request = decode_request(line)
        if request.id in self._in_flight:
            raise RefusedFrame(f"a request with the id {request.id!r} is still in flight; use another", request.id)
        return request

    async def _refuse(self, refusal: RefusedFrame) -> None:
        self._refused_in_a_row += 1
        if self._refused_in_a_row > self._limits.max_refused:
            raise refusal
        await self._outbox.put(encode_error(refusal.request_id, refusal))
        await trio.lowlevel.checkpoint()  # a flood of rubbish takes turns with the other connections

    # --- answers out ------------------------------------------------------------------------------------------------

    async def _serve(self, request: Incoming) -> None:
        try:
            await self._outbox.put(await self._answer(request))
        except trio.Cancelled:
            if not self._is_lost:
                gone = PoolClosed("the supervisor closed the connection before the request had ended")
                self._outbox.put_nowait(encode_error(request.id, gone))
            raise
        finally:
            del self._in_flight[request.id]
            self._slots.release()
            if not self._in_flight:
                self._none_in_flight.set()

    async def _answer(self, request: Incoming) -> bytes:
        async def emit(event: str, data: Any) -> None:
            await self._outbox.put(encode_event(request.id, event, data))

        try:
            return encode_result(request.id, await self._handlers.call(request.method, request.params, emit))
        except PoolError as exc:
            return encode_error(request.id, exc)
        except Exception as exc:  # a defect behind the door is answered and logged; it must not end the supervisor
            cause = single_cause(exc)
            if isinstance(cause, PoolError):
                return encode_error(request.id, cause)
            _logger.exception("the method %s failed", request.method)
            text = f"the supervisor failed to run {request.method}: {type(cause).__name__}: {cause}"
            return encode_error(request.id, InternalError(text))


def _has_hung_up(fd: int) -> bool:
    """Whether the peer has closed its socket altogether, as far as the kernel knows right now."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP is always reported
    return any(flags & select.POLLHUP for _, flags in poll.poll(0))
