"""Requests that wait for their answers: each is settled once, by its answer, its deadline or the worker's end."""

import math
from collections.abc import Callable

from errors import PoolError, RequestTimeout, WorkerRefused
from rpc.endings import MAX_REASON
from rpc.exchange import Deadlines, Exchange
from wire.messages import Message
from wire.veil import Veil

__all__ = ["PendingRequests", "own_error"]


class PendingRequests:
    """Correlates answers with requests by ids made here. ``forget`` tells the dialect that nobody waits any more."""

    def __init__(self, worker: str, forget: Callable[[str], None], veil: Veil) -> None:
        self._worker = worker
        self._forget = forget
        self._veil = veil
        self._exchanges: dict[str | int | None, Exchange] = {}
        self._deadlines = Deadlines(self._exchanges)
        self.requests = 0
        self.answers = 0
        self.late_answers = 0
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._exchanges)

    def next_id(self) -> str:
        """An id that no earlier request of this worker had."""
        self.requests += 1
        return str(self.requests)

    def add(self, exchange: Exchange) -> None:
        """It is on its way."""
        self._exchanges[exchange.id] = exchange
        if exchange.deadline != math.inf:
            self._deadlines.add(exchange)

    def answer(self, message: Message) -> None:
        """Settle the request that this answers; an answer nobody waits for is counted and dropped."""
        exchange = self._exchanges.pop(message.id, None)
        if exchange is None:
            self.late_answers += 1
            return
        self.answers += 1
        if message.error is None:
            exchange.succeed(message.result)
            return
        code = self._veil.beginning(message.error.code, MAX_REASON)
        reason = self._veil.beginning(message.error.message, MAX_REASON)
        exchange.fail(
            WorkerRefused(
                reason or f"worker {self._worker} refused {exchange.method}: {code}",
                worker=self._worker,
                method=exchange.method,
                worker_code=code,
                data=self._veil.document(message.error.data) or None,
            )
        )

    def abandon(self, exchange: Exchange) -> bool:
        """Nobody waits for it any more; returns whether it was pending."""
        if self._exchanges.pop(exchange.id, None) is None:
            return False
        self._forget(exchange.id)
        exchange.abandon()
        return True

    def deferred_were_sent(self) -> None:
        """The dialect has sent something it had held back; whose it was is not known, so all of them may be sent."""
        for exchange in self._exchanges.values():
            exchange.sent = exchange.sent or exchange.deferred

    def expire(self, now: float) -> None:
        """Fail what has waited too long, or call its ``on_deadline``."""
        for exchange in self._deadlines.due(now):
            if exchange.on_deadline is not None:
                exchange.on_deadline()
            elif self.abandon(exchange):
                exchange.fail(self.timeout_of(exchange.method, sent=exchange.sent))

    def next_deadline(self) -> float:
        """When ``expire`` wants to be called; ``inf`` for never."""
        return self._deadlines.next()

    def timeout_of(self, method: str, *, sent: bool) -> RequestTimeout:
        """The error for a request whose time is over, which is counted."""
        self.timeouts += 1
        return RequestTimeout(
            f"worker {self._worker} did not answer {method} in time", worker=self._worker, method=method, sent=sent
        )

    def fail_all(self, error: PoolError) -> None:
        """The one terminal path: every request fails with an error of its own that tells whether it was sent."""
        exchanges = list(self._exchanges.values())
        self._exchanges.clear()
        for exchange in exchanges:
            exchange.fail(own_error(error, sent=exchange.sent, method=exchange.method))


def own_error(error: PoolError, **details: object) -> PoolError:
    """A copy that one caller may raise: a shared exception would collect every raiser's traceback."""
    copy = type(error)(error.message, **{**error.details, **details})
    copy.__cause__ = error.__cause__
    return copy
