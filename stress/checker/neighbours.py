"""I12: what is done to one worker is felt by nobody else."""

import math
from collections.abc import Iterator, Sequence

from stress.checker.book import Book, Entry
from stress.checker.judge import Blame, Judge, Rules
from stress.facts import DAMAGED, EVERYBODY, Answered, Fact, Injected, Silence, Told

__all__ = ["Neighbours", "quantile"]

_WORKERS_FAULT = frozenset({"worker_exited", "worker_stalled", DAMAGED})
_LEAST_SAMPLES = 100
_NOTICEABLE = 0.25
"""Seconds; below, twice as long is nothing that anybody could tell on a machine with other work."""
_FELT_SECONDS = 5.0
"""What befell all workers may make requests fail that are asked so much later."""
_RECOVERY_SECONDS = 30.0
"""And those that are asked so much later may wait longer for it, as all workers may have to be started."""


class Neighbours(Judge):
    """I12: only requests on a worker that was hit fail for it, and the others wait at most twice as long."""

    invariant = "I12"

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self._calm: list[float] = []
        self._others: list[float] = []

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """Judge each failure, and all delays at the end."""
        if isinstance(fact, Silence):
            yield from self._compare()
        if isinstance(fact, Told):
            self.checked += math.isfinite(self.rules.told_within)
            if fact.seconds > self.rules.told_within + book.delay():
                yield Blame(f"front end {fact.front_end} heard of an outcome {fact.seconds:.3f} s after others did")
        if not isinstance(fact, Answered):
            return
        entry = book.entries.get(fact.number)
        if entry is None or entry.ended is not None or entry.asked.wicked:
            return
        if fact.code in _WORKERS_FAULT:
            self.checked += 1
            if not self._explains(fact.code, entry, book):
                worker = entry.worker or "no worker"
                what = f"request {fact.number} on {worker} ended with {fact.code}, and nothing was done to that worker"
                yield Blame(what, (fact.number,), entry.worker)
        elif fact.reason == "completed":
            self._note_delay(fact, entry, book)

    def _explains(self, code: str, entry: Entry, book: Book) -> bool:
        """A transcript may be damaged by any fault, long before it is read again."""
        if code == DAMAGED:
            return book.may_be_damaged(entry.asked.session)
        return self._is_hit(entry, book, _FELT_SECONDS)

    def _is_hit(self, entry: Entry, book: Book, slack: float) -> bool:
        """``slack``: for how many seconds after its end a fault of all workers may still be felt."""
        if entry.life != book.life:
            return True
        slack += book.delay()
        if any(fault.hurts and _hits_all(fault, entry, book, slack) for fault in book.faults_on(EVERYBODY)):
            return True
        if not entry.worker:
            return any(fault.hurts and fault.worker != EVERYBODY for fault in book.faults_since(entry.asked.t))
        return any(fault.hurts for fault in book.faults_on(entry.worker))

    def _note_delay(self, fact: Answered, entry: Entry, book: Book) -> None:
        if not self.rules.compares:
            return
        took = fact.t - entry.asked.t - entry.asked.turn
        if fact.t < self.rules.calm:
            self._calm += [took] if entry.asked.t >= self.rules.ramp else []
        elif entry.asked.t > self.rules.calm and entry.is_alone and not self._is_hit(entry, book, _RECOVERY_SECONDS):
            self._others.append(took)

    def _compare(self) -> Iterator[Blame]:
        if not self.rules.compares or len(self._calm) < _LEAST_SAMPLES:
            self.note = "too few workers, or requests before the first fault, to compare waiting times"
            return
        if len(self._others) < _LEAST_SAMPLES:
            self.note = "nearly all requests waited for others of their session, or for a worker that was hit"
            return
        if quantile(self._calm, 0.5) > _NOTICEABLE:
            self.note = "requests waited before any fault too: the machine is too busy to compare waiting times"
            return
        self.checked += 1
        calm, others = quantile(self._calm, 0.99), quantile(self._others, 0.99)
        if others > 2 * calm and others > calm + _NOTICEABLE:
            yield Blame(f"p99 of those whose worker was let alone is {others:.3f} s, without faults it is {calm:.3f} s")


def _hits_all(fault: Injected, entry: Entry, book: Book, slack: float) -> bool:
    """Whether the request may feel what is done to all workers: it was open meanwhile, or its worker began."""
    end = fault.t + fault.seconds
    born = book.born.get(entry.worker, -math.inf)
    return end + slack >= entry.asked.t or fault.t <= born <= end + slack


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
