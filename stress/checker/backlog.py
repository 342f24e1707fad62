"""Facts that wait until it is known by how much this machine made them late. Pure."""

import math
from collections import deque
from collections.abc import Iterable, Iterator

from stress.checker.book import Book
from stress.facts import Delayed, Fact

__all__ = ["Backlog", "in_due_time"]

_TOLD_SECONDS = 5.0
"""What holds a process up is told of when it is over, at most a second later: so long it may last to be reckoned with.

Whoever judged at once would blame the pool for what the machine tells of a moment later.
"""


class Backlog:
    """``book`` is told of delays as soon as they are known, of all else by whoever judges it."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._waiting: deque[Fact] = deque()

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._waiting)

    def add(self, fact: Fact) -> Iterator[Fact]:
        """The next fact waits; those that may be judged now, each to be taken into the book before the next."""
        self._waiting.append(fact)
        if isinstance(fact, Delayed):
            self._book.foresee(fact)
            yield from self._until(fact.t - _TOLD_SECONDS)

    def rest(self) -> Iterator[Fact]:
        """Those that wait, when no more come."""
        yield from self._until(math.inf)

    def _until(self, t: float) -> Iterator[Fact]:
        while self._waiting and self._waiting[0].t <= t:
            fact = self._waiting.popleft()
            self._book.reach(fact.t)
            yield fact


def in_due_time(facts: Iterable[Fact], book: Book) -> Iterator[Fact]:
    """All of a history, each when it may be judged."""
    backlog = Backlog(book)
    for fact in facts:
        yield from backlog.add(fact)
    yield from backlog.rest()
