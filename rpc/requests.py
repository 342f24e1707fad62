"""Requests to a worker: each is settled once, by its answer, its deadline or the worker's end; parameter encoding."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from errors import PoolError, RequestTimeout, UsageError, WorkerRefused
from rpc.dialect import JournalWrite
from rpc.transport import MAX_REASON_CHARS
from rpc.wakeup import Wakeup
from wire.framing import DECODE_ERRORS
from wire.messages import Message
from wire.redaction import SecretMask
from wire.timers import KeyedTimers


class RpcRequest:
    """A request and what became of it. One task at a time may ``wait``.

    Attributes:
        id: under which the worker answers.
        method: what was asked.
        sent: whether any byte of it has (or may have) entered the worker's pipe.
        deferred: the dialect holds its bytes back and will send them later, unannounced.
        deadline: monotonic time in seconds, ``inf`` for none.
        on_deadline: called when the deadline has passed; without it the request fails with RequestTimeout.
        on_settled: called in the step that settles it, that is, between the events before and after the answer.
        journal: path of the transcript that its text was recorded in; empty where it was not.
        interrupt: ends the wait of a task that reads the answer itself, where another task settles the request.
    """

    __slots__ = (
        "_error",
        "_result",
        "_waiter",
        "deadline",
        "deferred",
        "id",
        "interrupt",
        "is_settled",
        "journal",
        "method",
        "on_deadline",
        "on_settled",
        "sent",
    )

    def __init__(
        self,
        request_id: str,
        method: str,
        deadline: float,
        *,
        on_settled: Callable[[], None] | None = None,
        on_deadline: Callable[[], None] | None = None,
    ) -> None:
        self.id = request_id
        self.method = method
        self.deadline = deadline
        self.on_settled = on_settled
        self.on_deadline = on_deadline
        self.sent = False
        self.deferred = False
        self.is_settled = False
        self.journal = ""
        self.interrupt: Callable[[], None] | None = None
        self._result: msgspec.Raw | None = None
        self._error: PoolError | None = None
        self._waiter: Wakeup | None = None

    def succeed(self, result: msgspec.Raw) -> None:
        """The worker has answered."""
        self._result = result
        self._settle()

    def fail(self, error: PoolError) -> None:
        """There will be no answer, or it was an error. ``error`` belongs to this request alone: it will be raised."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self.is_settled = True
        if self._waiter is not None:
            self._waiter.wake()
        if self.interrupt is not None:
            self.interrupt()
        on_settled, self.on_settled, self.on_deadline = self.on_settled, None, None  # what they belong to holds this
        if on_settled is not None:
            on_settled()

    async def wait(self) -> msgspec.Raw:
        """Wait for the answer; raises the PoolError it failed with. Cancelling leaves the request as it is."""
        if self.is_settled:
            await trio.lowlevel.checkpoint()
        else:
            self._waiter = Wakeup()
            await self._waiter.wait()
        return self.result()

    def result(self) -> msgspec.Raw:
        """The answer of a settled request; raises the PoolError it failed with."""
        if self._error is not None:
            raise self._error
        assert self._result is not None, f"{self.method} {self.id} is not settled"  # noqa: S101 - our own bug, not a peer's
        return self._result

    @property
    def is_answered(self) -> bool:
        """Whether it was settled with an answer or an error, not merely abandoned."""
        return self._result is not None or self._error is not None


class DeadlineTimer:
    """One task that sleeps until the earliest of many times; an earlier time re-arms it without waking it."""

    def __init__(self) -> None:
        self._deadline = math.inf
        self._sleep: trio.CancelScope | None = None

    def schedule(self, when: float) -> None:
        """Ring at ``when`` (monotonic seconds) at the latest."""
        if when < self._deadline:
            self._deadline = when
            if self._sleep is not None:
                self._sleep.deadline = when

    async def run(self, ring: Callable[[float], float]) -> None:
        """Call ``ring(now)`` whenever the time has come; it says when it wants the next call."""
        while True:
            with trio.CancelScope(deadline=self._deadline) as self._sleep:
                await trio.sleep_forever()
            self._deadline = math.inf
            self.schedule(ring(trio.current_time()))


class PendingRequests:
    """Correlates answers with requests by ids made here. ``forget``: a caller stopped waiting."""

    def __init__(self, worker: str, forget: Callable[[str], None], mask: SecretMask) -> None:
        self._worker = worker
        self._forget = forget
        self._mask = mask
        self._by_id: dict[str | int | None, RpcRequest] = {}
        self._deadlines = KeyedTimers[str]()
        self.requests = 0
        self.answers = 0
        self.late_answers = 0
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, request: RpcRequest) -> None:
        """It is on its way."""
        self._by_id[request.id] = request
        if request.deadline != math.inf:
            self._deadlines.set(request.id, request.deadline)

    def answer(self, message: Message) -> None:
        """Settle the request that this answers; an answer without a pending request is counted and dropped."""
        request = self._by_id.pop(message.id, None)
        if request is None:
            self.late_answers += 1
            return
        self._deadlines.discard(request.id)
        self.answers += 1
        if message.error is None:
            request.succeed(message.result)
            return
        code = self._mask.prefix(message.error.code, MAX_REASON_CHARS)
        reason = self._mask.prefix(message.error.message, MAX_REASON_CHARS)
        request.fail(
            WorkerRefused(
                reason or f"worker {self._worker} refused {request.method}: {code}",
                worker=self._worker,
                method=request.method,
                worker_code=code,
                data=self._mask.json(message.error.data) or None,
            )
        )

    def abandon(self, request: RpcRequest) -> bool:
        """Stop waiting for it; returns whether it was pending."""
        if self._by_id.pop(request.id, None) is None:
            return False
        self._deadlines.discard(request.id)
        self._forget(request.id)
        request.is_settled = True
        return True

    def mark_deferred_sent(self) -> None:
        """The dialect has sent something it had held back; whose it was is not known, so all of them may be sent."""
        for request in self._by_id.values():
            request.sent = request.sent or request.deferred

    def expire(self, now: float) -> None:
        """Fail what has waited too long, or call its ``on_deadline``."""
        for request in [self._by_id[due] for due in self._deadlines.pop_due(now)]:
            if request.on_deadline is not None:
                request.on_deadline()
            elif self.abandon(request):
                request.fail(self.timeout_error(request.method, sent=request.sent))

    def next_deadline(self) -> float:
        """When ``expire`` wants to be called; ``inf`` for never."""
        due = self._deadlines.next_due()
        return math.inf if due is None else due

    def timeout_error(self, method: str, *, sent: bool) -> RequestTimeout:
        """The error for a request whose time is over, which is counted."""
        self.timeouts += 1
        return RequestTimeout(
            f"worker {self._worker} did not answer {method} in time", worker=self._worker, method=method, sent=sent
        )

    def fail_all(self, error: PoolError) -> list[JournalWrite]:
        """The one terminal path: every request fails with an error of its own that says whether it was sent.

        Returns what takes a prompt that was not back from its transcript: the caller may give it to another worker.
        """
        requests = list(self._by_id.values())
        self._by_id.clear()
        self._deadlines = KeyedTimers()
        for request in requests:
            request.fail(copy_error(error, sent=request.sent, method=request.method))
        return [
            JournalWrite(request.journal, withdraws=True)
            for request in requests
            if request.journal and not request.sent
        ]


def copy_error(error: PoolError, **details: object) -> PoolError:
    """A copy that one caller may raise: a shared exception would collect every raiser's traceback."""
    copy = type(error)(error.message, **{**error.details, **details})
    copy.__cause__ = error.__cause__
    return copy


_encode = msgspec.json.Encoder().encode


def encode_params(method: str, params: Any) -> msgspec.Raw:
    """Encode parameters; ``None`` is ``{}``. Raw JSON, also inside, is checked and brought to one line.

    Raises UsageError for what is no JSON object: a worker's program may die of a bare ``null``.
    """
    if params is None:
        return msgspec.Raw(b"{}")
    try:
        encoded = _encode(params)
        if isinstance(params, msgspec.Raw) or b"\n" in encoded:
            encoded = _encode(msgspec.json.decode(encoded))
    except (TypeError, ValueError, OverflowError, *DECODE_ERRORS) as exc:
        raise UsageError(f"the parameters of {method} cannot be written as JSON: {exc}") from exc
    if not encoded.startswith(b"{"):
        raise UsageError(f"the parameters of {method} are no JSON object but {encoded[:40]!r}")
    return msgspec.Raw(encoded)
