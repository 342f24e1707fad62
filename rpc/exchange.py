"""One request on its way: registered, perhaps sent, settled exactly once; and the deadlines of all of them."""

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio

from errors import PoolError

__all__ = ["Alarm", "Deadlines", "Exchange"]


class Exchange:
    """A request and what became of it. One task at a time may ``wait``.

    Attributes:
        id: under which the worker answers.
        method: what was asked.
        sent: whether any byte of it has (or may have) entered the worker's pipe.
        deferred: the dialect holds its bytes back and will send them later, unannounced.
        deadline: monotonic time in seconds, ``inf`` for none.
        on_deadline: called when the deadline has passed; without it the request fails with RequestTimeout.
        on_settled: called in the step that settles it, that is, between the events before and after the answer.
    """

    __slots__ = (
        "_error",
        "_result",
        "_task",
        "deadline",
        "deferred",
        "id",
        "is_settled",
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
        self._result: msgspec.Raw | None = None
        self._error: PoolError | None = None
        self._task: trio.lowlevel.Task | None = None

    def succeed(self, result: msgspec.Raw) -> None:
        """The worker has answered."""
        self._result = result
        self._settle()

    def fail(self, error: PoolError) -> None:
        """There will be no answer, or it was an error. ``error`` belongs to this exchange alone: it will be raised."""
        self._error = error
        self._settle()

    def abandon(self) -> None:
        """Nobody waits for it; an answer that comes later is not for it."""
        self.is_settled = True

    def _settle(self) -> None:
        self.is_settled = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None
        if self.on_settled is not None:
            self.on_settled()

    async def wait(self) -> msgspec.Raw:
        """Wait for the answer; raises the PoolError it failed with. Cancelling leaves the request as it is."""
        if self.is_settled:
            await trio.lowlevel.checkpoint()
        else:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort_wait)
        return self.result()

    def result(self) -> msgspec.Raw:
        """The answer of a settled exchange; raises the PoolError it failed with."""
        if self._error is not None:
            raise self._error
        assert self._result is not None, f"{self.method} {self.id} is not settled"  # noqa: S101 - our own bug, not a peer's
        return self._result

    @property
    def is_answered(self) -> bool:
        """Whether it was settled with an answer or an error, not merely abandoned."""
        return self._result is not None or self._error is not None

    def _abort_wait(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Deadlines:
    """Deadlines of the exchanges in ``pending``, earliest first.

    Entries are ids, so that nothing here keeps a settled exchange and its answer; ids that are no longer pending are
    dropped in passing and cost no call of their own.
    """

    def __init__(self, pending: Mapping[Any, Exchange]) -> None:
        self._pending = pending
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, exchange: Exchange) -> None:
        """Watch a pending exchange. The heap stays within about twice the number of pending ones."""
        heapq.heappush(self._heap, (exchange.deadline, exchange.id))
        if len(self._heap) > 2 * len(self._pending) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._pending]
            heapq.heapify(self._heap)

    def due(self, now: float) -> list[Exchange]:
        """Take out the pending exchanges whose time is over, in the order of their deadlines."""
        found = []
        while self._heap and (self._heap[0][0] <= now or self._heap[0][1] not in self._pending):
            exchange = self._pending.get(heapq.heappop(self._heap)[1])
            if exchange is not None:
                found.append(exchange)
        return found

    def next(self) -> float:
        """The earliest deadline, perhaps of a settled exchange; ``inf`` when there is none."""
        return self._heap[0][0] if self._heap else math.inf


class Alarm:
    """One task that sleeps until the earliest of many times; an earlier time re-arms it without waking it."""

    def __init__(self) -> None:
        self._when = math.inf
        self._sleep: trio.CancelScope | None = None

    def not_later_than(self, when: float) -> None:
        """Ring at ``when`` (monotonic seconds) at the latest."""
        if when < self._when:
            self._when = when
            if self._sleep is not None:
                self._sleep.deadline = when

    async def run(self, ring: Callable[[float], float]) -> None:
        """Call ``ring(now)`` whenever the time has come; it says when it wants the next call."""
        while True:
            with trio.CancelScope(deadline=self._when) as self._sleep:
                await trio.sleep_forever()
            self._when = math.inf
            self.not_later_than(ring(trio.current_time()))
