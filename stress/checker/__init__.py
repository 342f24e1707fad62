"""Runs all invariant checks over the facts, each when it is known how much this machine delayed it. Pure."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stress.checker.base import CheckRules, InvariantCheck, ObservedState, Violation
from stress.checker.requests import TIMED_OUT, SessionIsolation, SingleOutcome
from stress.checker.supervisor import BoundedResources, FaultIsolation, NoLeftovers, NoSignalToReusedPid, quantile
from stress.checker.waiters import FairOrder, WaitDeadlines
from stress.checker.workers import CapacityRecovery, MaxWorkers, NoMidTurnEviction, StatusMatchesProc
from stress.facts import Fact, FaultInjected, MachineDelay, SupervisorEnded, SupervisorStarted
from stress.outcome import INVARIANTS, InvariantVerdict, ViolationReport

__all__ = ["TIMED_OUT", "Backlog", "CheckRules", "Checker", "Evidence", "in_due_time", "judge", "quantile", "shows"]

_DELAY_REPORT_SECONDS = 5.0
"""Checks wait for this time: a delay of the machine is reported only at its end, up to a second later.

An immediate check would blame the pool for it.
"""


class FactBuffer:
    """Holds facts back until delays of the machine at their time are known; ``state`` gets delays at once."""

    def __init__(self, book: ObservedState) -> None:
        self._state = book
        self._waiting: deque[Fact] = deque()

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._waiting)

    def add(self, fact: Fact) -> Iterator[Fact]:
        """Queue the next fact; yields those that may be checked now. The caller applies each before the next."""
        self._waiting.append(fact)
        if isinstance(fact, MachineDelay):
            self._state.add_delay(fact)
            yield from self._release_until(fact.t - _DELAY_REPORT_SECONDS)

    def drain(self) -> Iterator[Fact]:
        """The facts that still wait, when no more come."""
        yield from self._release_until(math.inf)

    def _release_until(self, t: float) -> Iterator[Fact]:
        while self._waiting and self._waiting[0].t <= t:
            fact = self._waiting.popleft()
            self._state.advance_to(fact.t)
            yield fact


def in_check_order(facts: Iterable[Fact], book: ObservedState) -> Iterator[Fact]:
    """All facts of a history, each when it may be checked."""
    backlog = FactBuffer(book)
    for fact in facts:
        yield from backlog.add(fact)
    yield from backlog.drain()


_CHECKS: tuple[type[InvariantCheck], ...] = (
    *(SingleOutcome, SessionIsolation, MaxWorkers, NoLeftovers, FairOrder, WaitDeadlines),
    *(BoundedResources, NoMidTurnEviction, CapacityRecovery, StatusMatchesProc, NoSignalToReusedPid, FaultIsolation),
)
_MAX_FACTS = 100_000
_MAX_VIOLATIONS = 5
"""For each invariant; further ones are only counted."""
_HISTORY_FACTS = 200
_CONTEXT_SECONDS = 30.0
"""Seconds before a violation from which faults belong to its history."""


class Evidence(NamedTuple):
    """A violation found at ``t``, and the facts that were kept up to then."""

    invariant: str
    t: float
    violation: Violation
    facts: Sequence[Fact]


class Checker:
    """Passes every fact to every check, once the machine's delay at that time is known.

    ``violations``: the first ones of each invariant; ``evidence``: the very first of each. ``harms``: number of
    requests that were lost, duplicated or mixed up.
    """

    def __init__(self, rules: CheckRules) -> None:
        self.violations: list[ViolationReport] = []
        self.broken: Counter[str] = Counter()
        self.harms: Counter[str] = Counter()
        self.evidence: dict[str, Evidence] = {}
        self._checks = [kind(rules) for kind in _CHECKS]
        self._state = ObservedState()
        self._buffer = FactBuffer(self._state)
        self._facts: deque[Fact] = deque(maxlen=_MAX_FACTS)

    def observe(self, fact: Fact) -> None:
        """Take the next fact, and check those that have waited for it."""
        for each in self._buffer.add(fact):
            self._check(each)

    def finish(self) -> None:
        """No more facts come: check all that still wait."""
        for each in self._buffer.drain():
            self._check(each)

    def _check(self, fact: Fact) -> None:
        self._facts.append(fact)
        for each in self._checks:
            for blame in each.check(fact, self._state):
                self._record_violation(each.invariant, fact.t, blame)
        self._state.apply(fact)

    def verdicts(self) -> tuple[InvariantVerdict, ...]:
        """One for each invariant, in order."""
        return tuple(
            InvariantVerdict(
                invariant=each.invariant,
                title=INVARIANTS[each.invariant],
                checked=each.checked,
                broken=self.broken[each.invariant],
                note=each.note,
            )
            for each in sorted(self._checks, key=lambda each: int(each.invariant[1:]))
        )

    def _record_violation(self, invariant: str, t: float, blame: Violation) -> None:
        self.broken[invariant] += 1
        if blame.harm:
            self.harms[blame.harm] += 1
        if invariant not in self.evidence:
            delays = (fact for fact in self._buffer if isinstance(fact, MachineDelay))  # the check knew no other
            self.evidence[invariant] = Evidence(invariant, t, blame, (*self._facts, *delays))
        if self.broken[invariant] <= _MAX_VIOLATIONS:
            history = tuple(self._history(t, blame))
            self.violations.append(ViolationReport(invariant=invariant, t=t, what=blame.what, history=history))

    def _history(self, t: float, blame: Violation) -> list[Fact]:
        """Facts about the requests, sessions, workers and pids concerned, and recent faults and supervisor lives."""
        sessions = {self._state.sessions.get(number) for number in blame.numbers} - {None}
        about = _ViolationScope(blame, sessions)
        found = [fact for fact in self._facts if about.concerns(fact) or _is_near(fact, t)]
        return [*found[-_HISTORY_FACTS:], *([] if self._facts[-1] in found else [self._facts[-1]])]


class _ViolationScope:
    """The requests, sessions, worker and pids that a violation concerns."""

    def __init__(self, blame: Violation, sessions: Iterable[str | None]) -> None:
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
    return isinstance(fact, FaultInjected | SupervisorStarted | SupervisorEnded) and fact.t >= t - _CONTEXT_SECONDS


def check_history(facts: Iterable[Fact], rules: CheckRules) -> list[ViolationReport]:
    """Check a whole history."""
    checker = Checker(rules)
    for fact in facts:
        checker.observe(fact)
    checker.finish()
    return checker.violations


def reproduces(facts: Iterable[Fact], rules: CheckRules, evidence: Evidence) -> bool:
    """Whether the check finds the very same violation in this history, at the same time."""
    (kind,) = (each for each in _CHECKS if each.invariant == evidence.invariant)
    judging, book = kind(rules), ObservedState()
    for fact in in_check_order(facts, book):
        if any(blame == evidence.violation and fact.t == evidence.t for blame in judging.check(fact, book)):
            return True
        book.apply(fact)
    return False
