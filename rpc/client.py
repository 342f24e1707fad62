"""The client of one worker: requests with deadlines, events for subscribers, and one end for everything pending."""

import math
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, TypeVar

import msgspec
import trio

from errors import PoolError, ProtocolViolation, WorkerError, WorkerExited
from rpc.dialect import Dialect, JournalWrite, Step
from rpc.passthrough import RawLine, RawRequest
from rpc.pipes import StdinQueue
from rpc.requests import DeadlineTimer, PendingRequests, RpcRequest, copy_error, encode_params
from rpc.settings import RpcSettings
from rpc.stdout import StdoutReader
from rpc.subscription import Broadcast, WorkerSubscription
from rpc.transport import (
    MAX_REASON_CHARS,
    ClientStatistics,
    ExitStatus,
    Transport,
    exit_error,
    protocol_error,
    start_error,
)
from rpc.worker_events import TRACKED_EVENTS, InvalidLines, WorkerEventTracker
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import BackgroundProcesses, ExecExit, Message, Ready
from wire.redaction import SecretMask

T = TypeVar("T")

_METHODS_WITHOUT_DEADLINE = frozenset({"prompt", "compact"})
"""Methods that take as long as they take: no deadline unless the caller gives one."""
_INSPECTED_EVENTS = TRACKED_EVENTS | {None}  # an answer is a message without an event
_MAX_DRAIN_BYTES = 1024 * 1024  # after the worker's exit: as much as a pipe may hold; a grandchild may write for ever


class RpcClient:
    """Speaks with one worker while ``run`` runs; all methods belong to the event loop's thread.

    ``name``: the worker's, in messages. ``now()``: seconds on the event loop's clock. ``end_error``: why there will be
    no more answers; None while there may be.
    """

    def __init__(
        self,
        transport: Transport,
        dialect: Dialect,
        settings: RpcSettings,
        *,
        name: str,
        mask: SecretMask | None = None,
        journal: Callable[[Sequence[JournalWrite]], ProtocolViolation | None] | None = None,
    ) -> None:
        self.name, self.settings, self._journal = name, settings, journal or (lambda _writes: None)
        self.now = trio.lowlevel.current_clock().current_time
        self.end_error: PoolError | None = None
        self._transport, self.dialect = transport, dialect
        self._framer = LineFramer(settings.max_line_bytes)
        self._stdin_queue = StdinQueue(transport, settings.send_queue_bytes)
        self._broadcast = Broadcast(max_events=settings.subscriber_events, max_bytes=settings.subscriber_bytes)
        self.mask = mask or SecretMask()
        self._stdout = StdoutReader(transport, self._broadcast, self._receive)
        self._pending = PendingRequests(name, dialect.forget, self.mask)
        self.abandon = self._pending.abandon
        self.invalid_lines = InvalidLines(settings.max_contaminated_lines, self.mask)
        self._deadline_timer, self._read_scope = DeadlineTimer(), trio.CancelScope()
        self._cause: ProtocolViolation | ExitStatus | None = None
        self._ready_or_ended, self._ended = trio.Event(), trio.Event()
        self._worker_events = WorkerEventTracker(on_ready=self._ready_or_ended.set)
        self._on_ended: Callable[[PoolError], None] | None = None
        self._on_raw: Callable[[tuple[RawLine, ...]], None] | None = None
        self._events = self._bytes_in = 0
        self._last_output: float | None = None

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Read and write until the worker is gone, then fail what is pending; ``ended`` says why.

        Returns normally however the worker ended. After a ProtocolViolation its process may still be alive: ending
        it is up to its owner.
        """
        error: PoolError = WorkerError(f"the client of worker {self.name} was closed", worker=self.name)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_exit)
                nursery.start_soon(self._write)
                nursery.start_soon(self._deadline_timer.run, self._on_deadline)
                self._take_step(self.dialect.open, self.now())
                task_status.started()
                with self._read_scope:
                    await self._stdout.run()
                    await self._expect_exit("stdout", self.settings.eof_grace)
                error = self._end_reason()
                nursery.cancel_scope.cancel()
        finally:
            self._end(error)

    async def wait_ready(self, timeout: float) -> Ready:  # noqa: ASYNC109 - the limit names what failed, not who waited
        """Wait until the worker takes requests. Raises WorkerStartFailed, with the end of its stderr."""
        with trio.move_on_after(timeout):
            await self._ready_or_ended.wait()
        if self.end_error is None and self._worker_events.ready is not None:
            return self._worker_events.ready
        refusal, tail = self._worker_events.start_failure, self._transport.stderr_tail()
        raise start_error(self.name, self.end_error, refusal, timeout, tail, mask=self.mask) from self.end_error

    async def wait_ended(self) -> PoolError:
        """Wait until there will be no more answers; returns why, never raises it."""
        await self._ended.wait()
        assert self.end_error is not None  # noqa: S101 - set together with the event
        return self.end_error

    # --- requests ----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | EllipsisType | None = ...,  # noqa: ASYNC109 - one heap of deadlines is cheaper than a scope each
    ) -> msgspec.Raw:
        """Send a request of the native protocol and wait for its answer, as undecoded JSON.

        ``timeout``: seconds, None for no deadline; by default ``settings.request_timeout``, and none for ``prompt`` and
        ``compact``.

        Raises:
            WorkerRefused: the worker answered with an error; ``details["worker_code"]`` is its code.
            RequestTimeout: no answer in time; one that comes later is dropped.
            WorkerExited: the worker ended; ``sent`` says whether it may have seen the request.
            ProtocolViolation: the worker broke the protocol and is no longer listened to.
            UsageError: the dialect refuses the method or its parameters; nothing was sent.
        """
        deadline = self._deadline_of(method, timeout)
        await self.wait_room(method, deadline)
        request = self.submit(method, params, deadline=deadline)
        try:
            return await self._stdout.wait_answer(request)
        finally:
            if not request.is_settled:  # the caller was cancelled
                self.abandon(request)

    async def request_as(
        self,
        kind: type[T],
        method: str,
        params: Any = None,
        *,
        timeout: float | EllipsisType | None = ...,  # noqa: ASYNC109 - as above
    ) -> T:
        """The same, with the answer decoded as ``kind``; raises ProtocolViolation when it has another shape."""
        return self.decode_as(kind, method, await self.request(method, params, timeout=timeout))

    def decode_as(self, kind: type[T], method: str, result: msgspec.Raw) -> T:
        """Decode an answer to ``method``; raises ProtocolViolation when it has another shape."""
        try:
            return msgspec.json.decode(result, type=kind)
        except DECODE_ERRORS as exc:
            text = f"worker {self.name} answered {method} in a wrong shape: {exc}"
            raise ProtocolViolation(self.mask.prefix(text, MAX_REASON_CHARS), worker=self.name) from exc

    def submit(
        self,
        method: str,
        params: Any = None,
        *,
        deadline: float = math.inf,
        on_settled: Callable[[], None] | None = None,
        on_deadline: Callable[[], None] | None = None,
        raw: RawRequest | None = None,
    ) -> RpcRequest:
        """Send a request without waiting for anything, also not for room; the request is settled exactly once.

        ``raw`` is sent instead where it is given: see ``rpc.dialect.Dialect.forward``.
        Raises the error that ended the client, or UsageError from the dialect.
        """
        if self.end_error is not None:
            raise copy_error(self.end_error, sent=False)
        self._pending.requests += 1
        new_id = str(self._pending.requests)  # one that no earlier request of this worker had
        request = RpcRequest(new_id, method, deadline, on_settled=on_settled, on_deadline=on_deadline)
        if raw is None:
            encoded = encode_params(method, params)
            step = self.dialect.request(request.id, method, encoded, self.now())
            if method == "ui_respond":
                self._worker_events.user_input.mark_answered(encoded)
        else:
            step = self.dialect.forward(request.id, raw.command, self.now())
            raw.on_sent(request.id)
        request.deferred = not step.outgoing
        self._pending.add(request)
        self._deadline_timer.schedule(deadline)
        self._apply(step, request)
        return request

    @property
    def has_room(self) -> bool:
        """Whether the queue to the worker has room."""
        return self._stdin_queue.has_room

    async def wait_room(self, method: str, deadline: float = math.inf) -> None:
        """Wait until the queue to the worker has room; no checkpoint when it has. Raises RequestTimeout."""
        if self.has_room:
            return
        with trio.move_on_at(deadline) as scope:
            await self._stdin_queue.wait_room()
        if scope.cancelled_caught:
            raise self._pending.timeout_error(method, sent=False)

    # --- events and figures ------------------------------------------------------------------------------------------

    def subscribe(self, *, max_events: int | None = None) -> WorkerSubscription:
        """Listen from now on (before ``run``: to everything). Read or close it: a full one stops the worker."""
        return self._broadcast.subscribe(max_events)

    def on_ended(self, listener: Callable[[PoolError], None]) -> None:
        """Call ``listener`` with the reason at the end, before any waiter here resumes."""
        self._on_ended = listener

    def on_background(self, changed: Callable[[BackgroundProcesses], None], ended: Callable[[ExecExit], None]) -> None:
        """Set the listeners for changes of the background processes and for their ends."""
        self._worker_events.on_background, self._worker_events.on_exec_exit = changed, ended

    def on_raw(self, listener: Callable[[tuple[RawLine, ...]], None] | None) -> None:
        """Set the one listener for the worker's own lines and the answers to forwarded requests; None removes it."""
        self._on_raw = listener
        self.dialect.listen_raw(on=listener is not None)

    @property
    def ready(self) -> Ready | None:
        """What the worker said when it became ready; None before."""
        return self._worker_events.ready

    @property
    def is_running(self) -> bool:
        """Whether the worker is inside a turn, as far as its output shows."""
        return self.end_error is None and self.dialect.is_running

    @property
    def is_streaming(self) -> bool:
        """Whether a prompt now would join the run in progress, as the worker's program sees it."""
        return self.end_error is None and self.dialect.is_streaming

    @property
    def background(self) -> BackgroundProcesses:
        """The worker's background processes, as last reported."""
        return self._worker_events.background

    @property
    def awaits_person(self) -> bool:
        """Whether an approval or a dialog is pending."""
        return bool(self._worker_events.user_input.open)

    def statistics(self) -> ClientStatistics:
        """Figures at this moment."""
        return ClientStatistics(
            requests=self._pending.requests,
            answers=self._pending.answers,
            late_answers=self._pending.late_answers,
            timeouts=self._pending.timeouts,
            events=self._events,
            invalid_lines=self.invalid_lines.count,
            bytes_in=self._bytes_in,
            bytes_out=self._stdin_queue.bytes_out,
            pending=len(self._pending),
            queued_bytes=self._stdin_queue.queued_bytes,
            backpressured=self._broadcast.is_full,
            backpressure_count=self._broadcast.backpressure_count,
            last_output=self._last_output,
        )

    # --- the inside: every input ends in one _apply ------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            await self._stdin_queue.run()
        except WorkerExited:
            # longer than the kill ladder, whose first rung closes stdin too: then the exit is the cause, not this
            await self._expect_exit("stdin", self.settings.eof_grace + 2 * self.settings.term_grace)

    async def _expect_exit(self, closed: str, grace: float) -> None:
        """A worker that has closed a pipe is about to end; its exit cancels this."""
        await trio.sleep(grace)
        if self._transport.has_ended():  # we were held up ourselves: the exit is the cause, once it is known
            await self._watch_exit()
        self._stop(ProtocolViolation(f"it closed its {closed} but lives on"))

    async def _watch_exit(self) -> None:
        self._stop(await self._transport.wait_exit())

    def _stop(self, cause: ProtocolViolation | ExitStatus) -> None:
        if self._cause is None:
            self._cause = cause
        self._read_scope.cancel()
        self._stdout.stop()

    def _receive(self, data: bytes) -> None:
        self._bytes_in += len(data)
        self._last_output = now = self.now()
        try:
            block = self._framer.feed_block(data)
            if block:
                step = self.dialect.receive(block, now)
                self._apply(step, size=len(block))
                if step.invalid_lines or self.invalid_lines.current_run:
                    self.invalid_lines.record(step)
            if self._framer.violation is not None:
                self._stop(self._framer.violation)
        except Exception as exc:  # noqa: BLE001 - whatever a worker prints ends that worker, never the supervisor
            self._stop(protocol_error(self.dialect.name, exc))

    def _take_step(self, begin: Callable[[float], Step], now: float) -> bool:
        """Perform a step of the dialect's own accord; False where that has ended the worker."""
        try:
            self._apply(begin(now))
        except Exception as exc:  # noqa: BLE001 - as above
            self._stop(protocol_error(self.dialect.name, exc))
            return False
        return True

    def _on_deadline(self, now: float) -> float:
        self._pending.expire(now)
        due = self.dialect.next_deadline()
        if due is not None and due <= now:
            due = self.dialect.next_deadline() if self._take_step(self.dialect.expire, now) else None
        return min(self._pending.next_deadline(), math.inf if due is None else due)

    def _apply(self, step: Step, request: RpcRequest | None = None, *, size: int = 0) -> None:
        if step.raw and self._on_raw is not None:
            self._on_raw(step.raw)
        if step.journal and (failure := self._journal(step.journal)) is not None:
            self._stop(failure)
            return
        if step.journal and request is not None:
            request.journal = step.journal[-1].path
        if step.messages:
            self._dispatch(step.messages, size)
        for line in step.outgoing:
            self._stdin_queue.put(line, request)
        if step.outgoing and request is None:
            self._pending.mark_deferred_sent()
        deadline = self.dialect.next_deadline()
        if deadline is not None:
            self._deadline_timer.schedule(deadline)

    def _dispatch(self, messages: list[Message], size: int) -> None:
        """Events before an answer are delivered before it, events after it after it."""
        start = 0
        if len(messages) == 1 or not _INSPECTED_EVENTS.isdisjoint({message.event for message in messages}):
            for index, message in enumerate(messages):
                if message.event is None:
                    if start < index:
                        self._publish(messages[start:index], size)
                        size = 0  # the block's bytes count once
                    start = index + 1
                    self._pending.answer(message)
                elif message.event in TRACKED_EVENTS:
                    self._worker_events.observe(message)
        self._publish(messages[start:] if start else messages, size)

    def _publish(self, events: list[Message], size: int) -> None:
        if events:
            self._events += len(events)
            self._broadcast.publish(events, size)

    def _deadline_of(self, method: str, timeout: float | EllipsisType | None) -> float:
        if isinstance(timeout, EllipsisType):
            timeout = None if method in _METHODS_WITHOUT_DEADLINE else self.settings.request_timeout
        return math.inf if timeout is None else self.now() + timeout

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end_reason(self) -> PoolError:
        """Why reading has stopped; after an exit first what the worker still said."""
        if isinstance(self._cause, ExitStatus):
            self._drain()
        assert self._cause is not None  # noqa: S101 - _stop is the only way out of reading
        return exit_error(self.name, self._cause, self._transport.stderr_tail(), self.mask)

    def _drain(self) -> None:
        """Read what lies in the pipe: the last answer must not lose the race against the exit."""
        left = _MAX_DRAIN_BYTES
        while left > 0 and (data := self._transport.receive_nowait()):
            left -= len(data)
            self._receive(data)

    def _end(self, error: PoolError) -> None:
        self._stdout.stop()
        self.invalid_lines.record_torn_line(self._framer.rest())
        self.end_error = error
        if self._on_ended is not None:
            self._on_ended(error)
        self._stdin_queue.close()
        self._journal(self._pending.fail_all(error))
        self._broadcast.finish(error)
        self._ready_or_ended.set()
        self._ended.set()
