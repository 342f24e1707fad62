"""One connection of the control socket: its requests run side by side, answers and events leave through one queue.

A peer can end at most its own connection. All that the supervisor holds for it is bounded: the unfinished line, the
requests in flight, the tasks they started, the bytes it has not read. All peers together share a budget besides.

One task at a time is the reader. It begins each request itself; a request that waits keeps the task, and reading goes
on in another one. So a request that is answered at once costs neither a task nor a scheduler turn.
"""

import collections
import contextvars
import functools
import logging
import select
import socket
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio

from doors.budgets import InputBudget, InputShare, OutputBudget, OutputShare
from doors.control.frames import (
    ControlRequest,
    InvalidFrame,
    decode_request,
    encode_error,
    encode_push,
    encode_raw_push,
    encode_result,
)
from doors.control.send_queue import PeerDisconnected, SendQueue
from errors import InternalError, PoolClosed, PoolError, PoolSaturated, ProtocolViolation, UsageError, single_cause
from gateway.caller import NO_RESPONSE, MethodDispatcher
from rpc.wakeup import Wakeup
from wire.framing import LineFramer
from wire.log_context import bind_facts
from wire.units import ByteCount, Seconds

T = TypeVar("T")


@types.coroutine
def run_eagerly(coroutine: Coroutine[Any, Any, T], before_waiting: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await ``coroutine`` in a context of its own; ``before_waiting`` is called once, when it waits for the first time.

    What never waits costs neither a task nor a turn of the scheduler; for what does, the caller can hand over its
    own work in time. Context variables that the coroutine sets are seen by its own steps only.
    """
    context = contextvars.copy_context()
    try:
        trap = context.run(coroutine.send, None)
        before_waiting()
        while True:
            try:
                woken_with = yield trap
            except BaseException as exc:  # noqa: BLE001  # whatever is thrown in is the coroutine's
                trap = context.run(coroutine.throw, exc)
            else:
                trap = context.run(coroutine.send, woken_with)
    except StopIteration as stop:
        result: T = stop.value
        return result


_CHUNK_BYTES = 64 * 1024
_TIME_SLICE_SECONDS = 0.001
"""How long one connection's requests are begun in a row before the others have their turn."""
_logger = logging.getLogger("pool.control")


class ControlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one peer, and all peers together, may make the supervisor hold."""

    max_connections: int = 512
    max_frame_bytes: ByteCount = ByteCount(8 * 1024 * 1024)
    max_requests: int = 64
    """Requests of one connection in flight; further ones are not read until one has ended."""
    max_tasks: int = 256
    """Subscriptions and other tasks of one connection that outlive the request which started them."""
    max_refused: int = 100
    """Lines in a row which are no request; one more ends the connection."""
    input_bytes: ByteCount = ByteCount(64 * 1024 * 1024)
    """All connections' unfinished lines and requests in flight, beyond the first 64 KiB of each."""
    out_buffer_bytes: ByteCount = ByteCount(256 * 1024)
    """Bytes that wait for one peer; its requests wait when there are more."""
    output_bytes: ByteCount = ByteCount(256 * 1024 * 1024)
    """What waits for all peers, answers of requests that wait included, beyond ``out_buffer_bytes`` of each."""
    write_stall: Seconds = Seconds(30)
    """A peer that takes no byte for this long, while some wait for it, is cut off."""
    flush_grace: Seconds = Seconds(1)
    """How long the last words of a closing connection may take."""


class Budgets(NamedTuple):
    """What all connections of one door share."""

    input: InputBudget
    output: OutputBudget


class ControlConnection:
    """Serves one accepted socket, which does not block, from ``run`` to its end."""

    def __init__(
        self,
        sock: socket.socket,
        methods: MethodDispatcher,
        limits: ControlLimits,
        budgets: Budgets,
        *,
        principal: str,
        name: str,
    ) -> None:
        """``principal`` and ``name`` as in ``gateway.caller.Caller``."""
        self._sock = sock
        self._methods = methods
        self._limits = limits
        self.principal = principal
        self.name = name
        share = OutputShare(budgets.output, free=limits.out_buffer_bytes, on_excess=self._cut_off)
        self.send_queue = SendQueue(sock, limit=limits.out_buffer_bytes, stall=limits.write_stall, share=share)
        self._nursery: trio.Nursery
        self._framer = LineFramer(limits.max_frame_bytes)
        self._lines: collections.deque[bytes] = collections.deque()
        self._may_have_more = False
        self._slice_ends = 0.0
        self._has_reader = True
        self._next_reader = Wakeup()
        """Where one task that has answered its request waits to be the reader again."""
        self._in_flight: dict[str | int, _InFlightRequest] = {}
        self._none_in_flight = trio.Event()
        self._tasks = 0
        self._consecutive_invalid = 0
        self._share = InputShare(budgets.input)
        self._bytes_in_flight = 0

    async def run(self) -> None:
        """Serve until the peer leaves, breaks the rules, or the surrounding scope is cancelled.

        Requests in flight and their tasks end with the connection; a peer that may still listen is notified.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._write)
                self._nursery.start_soon(self._read)
        finally:
            if self._share.charged:
                self._share.release(0)
            await self._flush_on_close()

    async def _write(self) -> None:
        try:
            await self.send_queue.send_forever()
        except PeerDisconnected:
            self.send_queue.discard()
            self._nursery.cancel_scope.cancel()

    def _cut_off(self, waiting: int) -> None:
        """Most of what waits for all peers waits for this one."""
        _logger.warning("a peer was cut off: %d bytes waited for it, the most of all peers", waiting)
        self.send_queue.discard()
        self._nursery.cancel_scope.cancel()

    async def _flush_on_close(self) -> None:
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._limits.flush_grace
            try:
                await self.send_queue.flush()
            except PeerDisconnected as exc:
                _logger.debug("a peer did not hear the last words: %s", exc)
        self.send_queue.discard()

    # --- requests in ------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Be the reader, until a request waits (then another task reads on) or the connection ends."""
        self._begin_slice()
        try:
            while self._lines or await self._receive():
                line = self._lines.popleft()
                request = self._decode(line) if line and not line.isspace() else None
                if isinstance(request, InvalidFrame):
                    await self._reject(request)
                elif request and not await self._serve(request) and not await self._wait_to_read():
                    return
                if time.perf_counter() > self._slice_ends:
                    await self._yield_turn()
        except ProtocolViolation:
            limit = self._limits.max_frame_bytes
            text = f"the request is too large: one request, its prompt included, may have {limit:,} bytes"
            self.send_queue.put_nowait(encode_error(None, UsageError(text)))
        except PoolSaturated as exc:
            self.send_queue.put_nowait(encode_error(None, exc))
        except InvalidFrame as exc:
            self.send_queue.put_nowait(encode_error(exc.request_id, exc))
        else:
            await self._finish()
        self._nursery.cancel_scope.cancel()

    async def _wait_to_read(self) -> bool:
        """Another task is the reader. Wait to follow it, which spares a task; False = one waits already."""
        if self._next_reader.is_awaited:
            return False
        await self._next_reader.wait()
        self._begin_slice()
        return True

    async def _yield_turn(self) -> None:
        self.send_queue.send_now()
        await trio.lowlevel.checkpoint()
        self._begin_slice()

    def _begin_slice(self) -> None:
        """The others have had their turn: this task has just been resumed."""
        self._slice_ends = time.perf_counter() + _TIME_SLICE_SECONDS

    async def _receive(self) -> bool:
        """Wait for whole lines; False when there will be none."""
        while not self._lines:
            self._share.charge(self._framer.pending_bytes + self._bytes_in_flight)
            self.send_queue.send_now()
            if not self._may_have_more:
                await trio.lowlevel.wait_readable(self._sock)
                self._begin_slice()
            try:
                chunk = self._sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                self._may_have_more = False
                continue
            except OSError:
                return False
            if not chunk:
                return False
            self._may_have_more = len(chunk) == _CHUNK_BYTES
            self._lines.extend(self._framer.feed(chunk))
        return True

    async def _finish(self) -> None:
        """The peer sends no more. One that only closed its sending side still gets the answers it waits for."""
        poll = select.poll()
        poll.register(self._sock.fileno(), 0)  # POLLHUP, of a socket that the peer has closed, is always reported
        if any(flags & select.POLLHUP for _, flags in poll.poll(0)):
            self.send_queue.discard()
        elif self._in_flight:
            self._none_in_flight = trio.Event()
            await self._none_in_flight.wait()

    def _decode(self, line: bytes) -> "_InFlightRequest | InvalidFrame":
        try:
            incoming = decode_request(line)
        except InvalidFrame as exc:
            return exc
        if incoming.id in self._in_flight:
            return InvalidFrame(f"a request with the id {incoming.id!r} is still in flight; use another", incoming.id)
        self._consecutive_invalid = 0
        return _InFlightRequest(self, incoming, len(line))

    async def _reject(self, refusal: InvalidFrame) -> None:
        self._consecutive_invalid += 1
        if self._consecutive_invalid > self._limits.max_refused:
            raise refusal
        await self.send_queue.put(encode_error(refusal.request_id, refusal))

    # --- answers out ------------------------------------------------------------------------------------------------

    async def _serve(self, request: "_InFlightRequest") -> bool:
        """Run a request to its answer; whether the calling task is the reader afterwards."""
        answer = None
        is_answered = False
        try:
            answer = await run_eagerly(self._answer(request), functools.partial(self._begin_wait, request))
            if not answer:
                pass  # the caller wants errors only
            elif self.send_queue.is_full:
                await self.send_queue.put(answer)
            else:
                self.send_queue.add(answer)  # the reader sends before it waits
            is_answered = True
        finally:
            if not is_answered:
                error = PoolClosed("the supervisor closed the connection before the request had ended", cut_short=True)
                self.send_queue.put_nowait(answer or encode_error(request.request_id, error))
            if request.keeps_task:
                del self._in_flight[request.request_id]
                self._bytes_in_flight -= request.size
                if self._share.charged:
                    self._share.release(self._framer.pending_bytes + self._bytes_in_flight)
                if not self._in_flight:
                    self._none_in_flight.set()
        if not request.keeps_task:
            return True
        self.send_queue.send_now()
        is_needed, self._has_reader = not self._has_reader, True
        return is_needed

    def _begin_wait(self, request: "_InFlightRequest") -> None:
        """A request keeps the task that read it: it is in flight from now on, and another task reads."""
        request.keeps_task = True
        self._in_flight[request.request_id] = request
        self._bytes_in_flight += request.size
        self.send_queue.send_now()
        self._has_reader = len(self._in_flight) < self._limits.max_requests
        if self._has_reader and not self._next_reader.wake():
            self._nursery.start_soon(self._read)

    async def _answer(self, request: "_InFlightRequest") -> bytes:
        bind_facts(request=request.request_id, method=request.method, principal=self.principal)
        try:
            result = await self._methods.call(request.method, request.params, request)
            return b"" if result is NO_RESPONSE else encode_result(request.request_id, result)
        except PoolError as exc:
            return encode_error(request.request_id, exc)
        except Exception as exc:  # a defect behind the door is answered and logged; it must not end the supervisor
            cause = single_cause(exc)
            if isinstance(cause, PoolError):
                return encode_error(request.request_id, cause)
            _logger.exception("the method %s failed", request.method)
            text = f"the supervisor failed to run {request.method}: {type(cause).__name__}: {cause}"
            return encode_error(request.request_id, InternalError(text))

    # --- tasks that go on -------------------------------------------------------------------------------------------

    def start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run it beside the requests. Raises PoolSaturated when too many run already."""
        limit = self._limits.max_tasks
        if self._tasks >= limit:
            raise PoolSaturated(f"{limit} subscriptions are open on this connection, which is the limit")
        self._tasks += 1
        self._nursery.start_soon(self._run_task, task)

    async def _run_task(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Exception as exc:  # a defect behind the door: the peer gets an error instead of waiting for ever
            _logger.exception("a task of a connection failed")
            cause = single_cause(exc)
            text = f"the supervisor failed to go on with a subscription: {type(cause).__name__}: {cause}"
            self.send_queue.put_nowait(encode_error(None, InternalError(text)))
            self._nursery.cancel_scope.cancel()
        finally:
            self._tasks -= 1


class _InFlightRequest:
    """A request, and to the methods its caller."""

    __slots__ = ("_connection", "keeps_task", "method", "name", "params", "principal", "request_id", "size")

    def __init__(self, connection: ControlConnection, incoming: ControlRequest, size: int) -> None:
        self._connection = connection
        self.principal = connection.principal
        self.name = connection.name
        self.request_id = incoming.id
        self.method = incoming.method
        self.params = incoming.params
        self.size = size
        self.keeps_task = False

    async def push(self, event: str, data: Any) -> None:
        await self._connection.send_queue.put(encode_push(event, data))

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:
        outbox, line = self._connection.send_queue, encode_raw_push(event, data)
        if result_follows and not outbox.is_full:
            outbox.add(line)  # sent with the answer
        else:
            await outbox.send(line)

    def push_now(self, event: str, data: bytes) -> bool:
        """Implements ``gateway.front_ends.attachment.NonBlockingCaller``."""
        outbox = self._connection.send_queue
        if outbox.is_full:
            return False
        outbox.add(encode_raw_push(event, data))
        outbox.send_now()
        return True

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        self._connection.start_task(task)
