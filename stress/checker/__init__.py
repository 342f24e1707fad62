"""Runs all invariant checks. Pure.

Facts that wait until it is known by how much this machine made them late. Pure.

The judges of the invariants: from what is seen from outside to what is wrong. Pure.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stress.checker.base import Blame, Book, Judge, Rules
from stress.checker.requests import TIMED_OUT, Apart, OneOutcome
from stress.checker.supervisor import Bounded, Neighbours, NothingLeft, StrangersLetAlone, quantile
from stress.checker.waiters import InOrder, InTime
from stress.checker.workers import AtMost, ComesBack, LeftAlone, TrueStatus
from stress.facts import Delayed, Fact, Injected, LifeBegan, LifeEnded
from stress.outcome import INVARIANTS, Verdict, Violation

__all__ = ["TIMED_OUT", "Backlog", "Checker", "Evidence", "Rules", "in_due_time", "judge", "quantile", "shows"]

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


_JUDGES: tuple[type[Judge], ...] = (
    *(OneOutcome, Apart, AtMost, NothingLeft, InOrder, InTime),
    *(Bounded, LeftAlone, ComesBack, TrueStatus, StrangersLetAlone, Neighbours),
)
_KEPT_FACTS = 100_000
_KEPT_VIOLATIONS = 5
"""Of each invariant; the others are counted."""
_HISTORY_FACTS = 200
_SURROUNDINGS = 30.0
"""Faults so many seconds before belong to the history of a broken promise."""


class Evidence(NamedTuple):
    """What a judge said of that moment; ``facts`` are those that were kept of what was seen until it was said."""

    invariant: str
    t: float
    blame: Blame
    facts: Sequence[Fact]


class Checker:
    """Shows every fact to every judge, when it is known how late the machine was then.

    ``violations`` are the first of each invariant, ``evidence`` has the very first of each. ``harms`` counts what
    became of requests that must not.
    """

    def __init__(self, rules: Rules) -> None:
        self.violations: list[Violation] = []
        self.broken: Counter[str] = Counter()
        self.harms: Counter[str] = Counter()
        self.evidence: dict[str, Evidence] = {}
        self._judges = [kind(rules) for kind in _JUDGES]
        self._book = Book()
        self._backlog = Backlog(self._book)
        self._facts: deque[Fact] = deque(maxlen=_KEPT_FACTS)

    def see(self, fact: Fact) -> None:
        """Take the next fact in, and judge what has waited for it."""
        for each in self._backlog.add(fact):
            self._judge(each)

    def finish(self) -> None:
        """No more facts come: judge all that still wait."""
        for each in self._backlog.rest():
            self._judge(each)

    def _judge(self, fact: Fact) -> None:
        self._facts.append(fact)
        for each in self._judges:
            for blame in each.see(fact, self._book):
                self._note(each.invariant, fact.t, blame)
        self._book.take(fact)

    def verdicts(self) -> tuple[Verdict, ...]:
        """About every invariant, in their order."""
        return tuple(
            Verdict(
                invariant=each.invariant,
                title=INVARIANTS[each.invariant],
                checked=each.checked,
                broken=self.broken[each.invariant],
                note=each.note,
            )
            for each in sorted(self._judges, key=lambda each: int(each.invariant[1:]))
        )

    def _note(self, invariant: str, t: float, blame: Blame) -> None:
        self.broken[invariant] += 1
        if blame.harm:
            self.harms[blame.harm] += 1
        if invariant not in self.evidence:
            delays = (fact for fact in self._backlog if isinstance(fact, Delayed))  # of the rest it was not aware
            self.evidence[invariant] = Evidence(invariant, t, blame, (*self._facts, *delays))
        if self.broken[invariant] <= _KEPT_VIOLATIONS:
            history = tuple(self._history(t, blame))
            self.violations.append(Violation(invariant=invariant, t=t, what=blame.what, history=history))

    def _history(self, t: float, blame: Blame) -> list[Fact]:
        """What was seen of those whom it is about, and the faults and lives before it."""
        sessions = {self._book.sessions.get(number) for number in blame.numbers} - {None}
        about = _About(blame, sessions)
        found = [fact for fact in self._facts if about.concerns(fact) or _is_near(fact, t)]
        return [*found[-_HISTORY_FACTS:], *([] if self._facts[-1] in found else [self._facts[-1]])]


class _About:
    """Whom a blame is about."""

    def __init__(self, blame: Blame, sessions: Iterable[str | None]) -> None:
        self._numbers = frozenset(blame.numbers)
        self._worker = blame.worker
        self._pids = frozenset(blame.pids)
        self._sessions = frozenset(sessions)

    def concerns(self, fact: Fact) -> bool:
        return (
            getattr(fact, "number", None) in self._numbers
            or getattr(fact, "session", None) in self._sessions
            or (bool(self._worker) and getattr(fact, "worker", None) == self._worker)
            or (getattr(fact, "pid", None) in self._pids)
        )


def _is_near(fact: Fact, t: float) -> bool:
    return isinstance(fact, Injected | LifeBegan | LifeEnded) and fact.t >= t - _SURROUNDINGS


def judge(facts: Iterable[Fact], rules: Rules) -> list[Violation]:
    """What is wrong with a history, from the beginning."""
    checker = Checker(rules)
    for fact in facts:
        checker.see(fact)
    checker.finish()
    return checker.violations


def shows(facts: Iterable[Fact], rules: Rules, evidence: Evidence) -> bool:
    """Whether the judge says the very same of this history, at the same moment."""
    (kind,) = (each for each in _JUDGES if each.invariant == evidence.invariant)
    judging, book = kind(rules), Book()
    for fact in in_due_time(facts, book):
        if any(blame == evidence.blame and fact.t == evidence.t for blame in judging.see(fact, book)):
            return True
        book.take(fact)
    return False
