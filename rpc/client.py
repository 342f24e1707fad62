"""The client of one worker: requests with deadlines, events for subscribers, and one end for everything pending."""

import math
from collections.abc import Callable
from types import EllipsisType
from typing import Any, TypeVar

import msgspec
import trio

from errors import PoolError, ProtocolViolation, WorkerError, WorkerExited
from rpc.dialect import Dialect, Step
from rpc.passthrough import RawLine, RawRequest
from rpc.pipes import Outbox
from rpc.requests import Alarm, Exchange, PendingRequests, encode_params, own_error
from rpc.settings import RpcSettings
from rpc.subscription import Broadcast, Subscription
from rpc.transport import MAX_REASON, ClientStatistics, ExitStatus, Transport, fault_of, why_ended, why_not_ready
from rpc.worker_events import NOTICED_EVENTS, Contamination, Notices
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import Background, ExecExit, Message, Ready
from wire.redaction import Veil

T = TypeVar("T")

_OPEN_ENDED = frozenset({"prompt", "compact"})
"""Methods that take as long as they take: no deadline unless the caller gives one."""
_LOOKED_AT = NOTICED_EVENTS | {None}
"""An answer is a message without an event."""
_DRAIN_BYTES = 1024 * 1024  # after the worker's exit: as much as a pipe may hold; a grandchild may write for ever


class RpcClient:
    """Speaks with one worker while ``run`` runs; all methods belong to the event loop's thread.

    ``name``: the worker's, in messages. ``ended``: why there will be no more answers; None while there may be.
    ``veil``: hides what errors may not repeat.
    """

    def __init__(
        self, transport: Transport, dialect: Dialect, settings: RpcSettings, *, name: str, veil: Veil | None = None
    ) -> None:
        self.name = name
        self.settings = settings
        self.ended: PoolError | None = None
        self._transport = transport
        self._dialect = dialect
        self._framer = LineFramer(settings.max_line_bytes)
        self._outbox = Outbox(transport, settings.send_queue_bytes)
        self._broadcast = Broadcast(max_events=settings.subscriber_events, max_bytes=settings.subscriber_bytes)
        self.veil = veil or Veil()
        self._pending = PendingRequests(name, dialect.forget, self.veil)
        self._contamination = Contamination(settings.max_contaminated_lines, self.veil)
        self._alarm = Alarm()
        self._reading = trio.CancelScope()
        self._cause: ProtocolViolation | ExitStatus | None = None
        self._ready_or_ended, self._gone = trio.Event(), trio.Event()
        self._notices = Notices(on_ready=self._ready_or_ended.set)
        self._on_ended: Callable[[PoolError], None] | None = None
        self._on_raw: Callable[[tuple[RawLine, ...]], None] | None = None
        self._events = self._bytes_in = 0
        self._last_output: float | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Read and write until the worker is gone, then fail what is pending; ``ended`` says why.

        Returns normally however the worker ended. After a ProtocolViolation its process may still be alive: ending
        it is up to whoever started it.
        """
        error: PoolError = WorkerError(f"the client of worker {self.name} was closed", worker=self.name)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_exit)
                nursery.start_soon(self._write)
                nursery.start_soon(self._alarm.run, self._ring)
                self._open()
                task_status.started()
                with self._reading:
                    await self._read()
                error = self._conclude()
                nursery.cancel_scope.cancel()
        finally:
            self._end(error)

    async def wait_ready(self, timeout: float) -> Ready:  # noqa: ASYNC109 - the limit names what failed, not who waited
        """Wait until the worker takes requests. Raises WorkerStartFailed, with the end of its stderr."""
        with trio.move_on_after(timeout):
            await self._ready_or_ended.wait()
        if self.ended is None and self._notices.ready is not None:
            return self._notices.ready
        refusal, tail = self._notices.start_failure, self._transport.stderr_tail()
        raise why_not_ready(self.name, self.ended, refusal, timeout, tail, veil=self.veil) from self.ended

    async def wait_ended(self) -> PoolError:
        """Wait until there will be no more answers; returns why, never raises it."""
        await self._gone.wait()
        assert self.ended is not None  # noqa: S101 - set together with the event
        return self.ended

    # --- requests ----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | EllipsisType | None = ...,  # noqa: ASYNC109 - one heap of deadlines is cheaper than a scope each
    ) -> msgspec.Raw:
        """Ask and wait for the answer, as undecoded JSON.

        Args:
            method: in native words.
            params: anything that encodes to a JSON object; None for none.
            timeout: seconds, None for no deadline; by default ``settings.request_timeout``, and none for ``prompt``
                and ``compact``.

        Raises:
            WorkerRefused: the worker answered with an error; ``details["worker_code"]`` is its code.
            RequestTimeout: no answer in time; one that comes later is dropped.
            WorkerExited: the worker ended; ``sent`` tells whether it may have seen the request.
            ProtocolViolation: the worker broke the protocol and is no longer listened to.
            UsageError: the dialect refuses the method or its parameters; nothing was sent.
        """
        deadline = self._deadline(method, timeout)
        await self.wait_room(method, deadline)
        exchange = self.submit(method, params, deadline=deadline)
        try:
            return await exchange.wait()
        finally:
            if not exchange.is_settled:  # the caller was cancelled
                self.abandon(exchange)

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
            raise ProtocolViolation(self.veil.beginning(text, MAX_REASON), worker=self.name) from exc

    def submit(
        self,
        method: str,
        params: Any = None,
        *,
        deadline: float = math.inf,
        on_settled: Callable[[], None] | None = None,
        on_deadline: Callable[[], None] | None = None,
        raw: RawRequest | None = None,
    ) -> Exchange:
        """Send a request without waiting for anything, also not for room; the exchange is settled exactly once.

        ``raw`` is sent instead where it is given: see ``rpc.dialect.Dialect.forward``.
        Raises the error that ended the client, or UsageError from the dialect.
        """
        if self.ended is not None:
            raise own_error(self.ended, sent=False)
        exchange = Exchange(self._pending.next_id(), method, deadline, on_settled=on_settled, on_deadline=on_deadline)
        if raw is None:
            encoded = encode_params(method, params)
            step = self._dialect.request(exchange.id, method, encoded, trio.current_time())
            if method == "ui_respond":
                self._notices.questions.answered(encoded)
        else:
            step = self._dialect.forward(exchange.id, raw.command, trio.current_time())
            raw.on_sent(exchange.id)
        exchange.deferred = not step.outgoing
        self._pending.add(exchange)
        self._alarm.not_later_than(deadline)
        self._apply(step, exchange)
        return exchange

    async def wait_room(self, method: str, deadline: float = math.inf) -> None:
        """Wait until the queue to the worker has room; no checkpoint when it has. Raises RequestTimeout."""
        if self._outbox.has_room:
            return
        with trio.move_on_at(deadline) as scope:
            await self._outbox.wait_room()
        if scope.cancelled_caught:
            raise self._pending.timeout_of(method, sent=False)

    def abandon(self, exchange: Exchange) -> None:
        """Nobody waits for it any more; a late answer is dropped and counted."""
        self._pending.abandon(exchange)

    # --- events and figures ------------------------------------------------------------------------------------------

    def subscribe(self, *, max_events: int | None = None) -> Subscription:
        """Listen from now on (before ``run``: to everything). Read or close it: a full one stops the worker."""
        return self._broadcast.subscribe(max_events)

    def on_ended(self, listener: Callable[[PoolError], None]) -> None:
        """Call ``listener`` with the reason when it is over, before anybody who waits here is told."""
        self._on_ended = listener

    def on_background(self, changed: Callable[[Background], None], ended: Callable[[ExecExit], None]) -> None:
        """Have one listener each told which background processes there are, and of their ends."""
        self._notices.on_background, self._notices.on_exec_exit = changed, ended

    def on_raw(self, listener: Callable[[tuple[RawLine, ...]], None] | None) -> None:
        """Have one listener told the worker's own lines, and the answers to what was forwarded; None for nobody."""
        self._on_raw = listener
        self._dialect.listen_raw(on=listener is not None)

    @property
    def ready(self) -> Ready | None:
        """What the worker said when it became ready; None before."""
        return self._notices.ready

    @property
    def is_running(self) -> bool:
        """Whether the worker is inside a turn, as far as its output has told."""
        return self.ended is None and self._dialect.is_running

    @property
    def is_streaming(self) -> bool:
        """Whether a prompt now would be one beside the run that is on; see ``rpc.dialect.Dialect``."""
        return self.ended is None and self._dialect.is_streaming

    @property
    def background(self) -> Background:
        """Which processes the worker runs in the background, as it last said."""
        return self._notices.background

    @property
    def awaits_person(self) -> bool:
        """Whether an approval or a dialog waits for a person's answer."""
        return bool(self._notices.questions)

    def contamination(self) -> list[bytes]:
        """The last few lines that were no message, oldest first, each cut to 512 bytes."""
        return self._contamination.samples

    def statistics(self) -> ClientStatistics:
        """Figures at this moment."""
        return ClientStatistics(
            requests=self._pending.requests,
            answers=self._pending.answers,
            late_answers=self._pending.late_answers,
            timeouts=self._pending.timeouts,
            events=self._events,
            contaminated=self._contamination.lines,
            bytes_in=self._bytes_in,
            bytes_out=self._outbox.bytes_out,
            pending=len(self._pending),
            queued_bytes=self._outbox.queued_bytes,
            backpressured=self._broadcast.is_full,
            held_back=self._broadcast.held_back,
            last_output=self._last_output,
        )

    # --- the inside: every input ends in one _apply ------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            await self._broadcast.wait_room()
            data = await self._transport.receive()
            if not data:
                break
            self._receive(data)
        await self._expect_exit("stdout", self.settings.eof_grace)

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        except WorkerExited:
            # longer than the kill ladder, whose first rung closes stdin too: then the exit is the cause, not this
            await self._expect_exit("stdin", self.settings.eof_grace + 2 * self.settings.term_grace)

    async def _expect_exit(self, closed: str, grace: float) -> None:
        """A worker that has closed a pipe is about to end; its exit cancels this."""
        await trio.sleep(grace)
        if self._transport.has_ended():  # we were held up ourselves: the exit is the cause, once it is told
            await self._watch_exit()
        self._stop(ProtocolViolation(f"it closed its {closed} but lives on"))

    async def _watch_exit(self) -> None:
        self._stop(await self._transport.wait_exit())

    def _stop(self, cause: ProtocolViolation | ExitStatus) -> None:
        if self._cause is None:
            self._cause = cause
        self._reading.cancel()

    def _receive(self, data: bytes) -> None:
        self._bytes_in += len(data)
        self._last_output = now = trio.current_time()
        try:
            block = self._framer.feed_block(data)
            if block:
                step = self._dialect.receive(block, now)
                self._apply(step, size=len(block))
                self._contamination.note(step)
            if self._framer.violation is not None:
                self._stop(self._framer.violation)
        except Exception as exc:  # noqa: BLE001 - whatever a worker prints ends that worker, never the supervisor
            self._stop(fault_of(self._dialect.name, exc))

    def _open(self) -> None:
        try:
            self._apply(self._dialect.open(trio.current_time()))
        except Exception as exc:  # noqa: BLE001 - as above
            self._stop(fault_of(self._dialect.name, exc))

    def _ring(self, now: float) -> float:
        self._pending.expire(now)
        due = self._dialect.next_deadline()
        if due is not None and due <= now:
            try:
                self._apply(self._dialect.expire(now))
            except Exception as exc:  # noqa: BLE001 - as above
                self._stop(fault_of(self._dialect.name, exc))
                return self._pending.next_deadline()
            due = self._dialect.next_deadline()
        return min(self._pending.next_deadline(), math.inf if due is None else due)

    def _apply(self, step: Step, exchange: Exchange | None = None, *, size: int = 0) -> None:
        if step.raw and self._on_raw is not None:
            self._on_raw(step.raw)
        if step.messages:
            self._dispatch(step.messages, size)
        for line in step.outgoing:
            self._outbox.put(line, exchange)
        if step.outgoing and exchange is None:
            self._pending.deferred_were_sent()
        deadline = self._dialect.next_deadline()
        if deadline is not None:
            self._alarm.not_later_than(deadline)

    def _dispatch(self, messages: list[Message], size: int) -> None:
        """Events before an answer are delivered before it, events after it after it."""
        start = 0
        if not _LOOKED_AT.isdisjoint({message.event for message in messages}):
            for index, message in enumerate(messages):
                if message.event is None:
                    if start < index:
                        self._publish(messages[start:index], size)
                        size = 0  # the block's bytes count once
                    start = index + 1
                    self._pending.answer(message)
                elif message.event in NOTICED_EVENTS:
                    self._notices.note(message)
        self._publish(messages[start:] if start else messages, size)

    def _publish(self, events: list[Message], size: int) -> None:
        if events:
            self._events += len(events)
            self._broadcast.publish(events, size)

    def _deadline(self, method: str, timeout: float | EllipsisType | None) -> float:
        if isinstance(timeout, EllipsisType):
            timeout = None if method in _OPEN_ENDED else self.settings.request_timeout
        return math.inf if timeout is None else trio.current_time() + timeout

    # --- the end -----------------------------------------------------------------------------------------------------

    def _conclude(self) -> PoolError:
        """Why reading has stopped; after an exit first what the worker still said."""
        if isinstance(self._cause, ExitStatus):
            self._drain()
        assert self._cause is not None  # noqa: S101 - _stop is the only way out of reading
        return why_ended(self.name, self._cause, self._transport.stderr_tail(), self.veil)

    def _drain(self) -> None:
        """Read what lies in the pipe: the last answer must not lose the race against the exit."""
        left = _DRAIN_BYTES
        while left > 0 and (data := self._transport.receive_nowait()):
            left -= len(data)
            self._receive(data)

    def _end(self, error: PoolError) -> None:
        self._contamination.note_torn_line(self._framer.rest())
        self.ended = error
        if self._on_ended is not None:
            self._on_ended(error)
        self._outbox.close()
        self._pending.fail_all(error)
        self._broadcast.finish(error)
        self._ready_or_ended.set()
        self._gone.set()
