"""Runs all invariant checks over the facts, each when it is known how much this machine delayed it. Pure.

``shrink`` finds the shortest history that still shows a violation: delta debugging with the check as the oracle.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from stress.checker.base import CheckRules, InvariantCheck, ObservedState, Violation
from stress.checker.requests import TIMED_OUT, SessionIsolation, SingleOutcome
from stress.checker.supervisor import BoundedResources, FaultIsolation, NoLeftovers, NoSignalToReusedPid, quantile
from stress.checker.waiters import FairOrder, WaitDeadlines
from stress.checker.workers import CapacityRecovery, MaxWorkers, NoMidTurnEviction, StatusMatchesProc
from stress.facts import Fact, FaultInjected, MachineDelay, RequestAsked, SupervisorEnded, SupervisorStarted
from stress.outcome import INVARIANTS, InvariantVerdict, ViolationReport

__all__ = ["TIMED_OUT", "CheckRules", "Checker", "Evidence", "quantile", "reproduces", "shrink"]

_DELAY_REPORT_SECONDS = 5.0
"""Checks wait for this time: a delay of the machine is reported only at its end, up to a second later.

An immediate check would violation the pool for it.
"""


class FactBuffer:
    """Holds facts back until delays of the machine at their time are known; ``state`` gets delays at once."""

    def __init__(self, state: ObservedState) -> None:
        self._state = state
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
            for violation in each.check(fact, self._state):
                self._record_violation(each.invariant, fact.t, violation)
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

    def _record_violation(self, invariant: str, t: float, violation: Violation) -> None:
        self.broken[invariant] += 1
        if violation.harm:
            self.harms[violation.harm] += 1
        if invariant not in self.evidence:
            delays = (fact for fact in self._buffer if isinstance(fact, MachineDelay))  # the check knew no other
            self.evidence[invariant] = Evidence(invariant, t, violation, (*self._facts, *delays))
        if self.broken[invariant] <= _MAX_VIOLATIONS:
            history = tuple(self._history(t, violation))
            self.violations.append(ViolationReport(invariant=invariant, t=t, what=violation.what, history=history))

    def _history(self, t: float, violation: Violation) -> list[Fact]:
        """Facts about the requests, sessions, workers and pids concerned, and recent faults and supervisor lives."""
        sessions = {self._state.sessions.get(number) for number in violation.numbers} - {None}
        found = [fact for fact in self._facts if _concerns(violation, sessions, fact) or _is_near(fact, t)]
        return [*found[-_HISTORY_FACTS:], *([] if self._facts[-1] in found else [self._facts[-1]])]


def _concerns(violation: Violation, sessions: set[str | None], fact: Fact) -> bool:
    """Whether the fact is about a request, session, worker or pid of the violation."""
    return (
        getattr(fact, "number", None) in violation.numbers
        or getattr(fact, "session", None) in sessions
        or (bool(violation.worker) and getattr(fact, "worker", None) == violation.worker)
        or getattr(fact, "pid", None) in violation.pids
    )


def _is_near(fact: Fact, t: float) -> bool:
    return isinstance(fact, FaultInjected | SupervisorStarted | SupervisorEnded) and fact.t >= t - _CONTEXT_SECONDS


def reproduces(facts: Iterable[Fact], rules: CheckRules, evidence: Evidence) -> bool:
    """Whether the check finds the very same violation in this history, at the same time."""
    (kind,) = (each for each in _CHECKS if each.invariant == evidence.invariant)
    check, state = kind(rules), ObservedState()
    buffer = FactBuffer(state)
    for fact in chain(chain.from_iterable(map(buffer.add, facts)), buffer.drain()):
        if any(violation == evidence.violation and fact.t == evidence.t for violation in check.check(fact, state)):
            return True
        state.apply(fact)
    return False


# --- the shortest history ---------------------------------------------------------------------------------------------

_MAX_CHECKED = 2_000_000
"""Facts that are checked again for one violation, some seconds' worth; the best history found so far is used."""


def shrink(
    evidence: Evidence, rules: CheckRules, *, likely: Sequence[Fact] = (), budget: int = _MAX_CHECKED
) -> list[Fact]:
    """The facts before a violation that are all needed to show it.

    The same promise must break in the same way, about the same requests and workers, at the same time; a request is
    kept from its beginning or not at all. ``likely``: facts that may suffice, tried first. If ``budget`` checked facts
    do not complete the search there are more than needed; empty if even all of them do not show it, because it began
    before the first fact kept.
    """
    search = _Shrinker(evidence, rules, budget)
    kept: Sequence[Fact] = evidence.facts
    if likely and search.reproduces(likely):
        kept = likely
    elif not search.reproduces(kept):
        return []
    for key in (_kind, _subject, _itself):
        kept = search.shortened(kept, key)
    return list(kept)


class _Shrinker:
    """The search for one violation, and its remaining budget."""

    def __init__(self, evidence: Evidence, rules: CheckRules, budget: int) -> None:
        self._evidence = evidence
        self._rules = rules
        self._budget = budget
        self._asked = {fact.number for fact in evidence.facts if isinstance(fact, RequestAsked)}

    def reproduces(self, facts: Sequence[Fact]) -> bool:
        """Whether these facts show the violation."""
        self._budget -= len(facts)
        return reproduces(facts, self._rules, self._evidence) and self._is_self_contained(facts)

    def shortened(self, facts: Sequence[Fact], key: Callable[[int, Fact], Hashable]) -> Sequence[Fact]:
        """Leave out ever smaller runs of groups of facts (by ``key``) that are not needed."""
        groups = _grouped(facts, key)
        size = max(1, len(groups) // 2)
        while True:
            fewer = self._sweep(facts, groups, size)
            if self._budget <= 0 or (size == 1 and len(fewer) == len(groups)):
                return [facts[index] for index in sorted(chain.from_iterable(fewer))]
            groups = fewer
            size = max(1, min(size, len(groups)) // 2)

    def _sweep(self, facts: Sequence[Fact], groups: list[list[int]], size: int) -> list[list[int]]:
        """One pass from the end, which leaves out each run of ``size`` groups that is not needed."""
        for first in range((len(groups) - 1) // size * size, -1, -size):
            if self._budget <= 0:
                break
            fewer = groups[:first] + groups[first + size :]
            if self.reproduces([facts[index] for index in sorted(chain.from_iterable(fewer))]):
                groups = fewer
        return groups

    def _is_self_contained(self, facts: Sequence[Fact]) -> bool:
        """Whether every request in the facts is there from its beginning, as in the evidence."""
        begun: set[int] = set()
        for fact in facts:
            if isinstance(fact, RequestAsked):
                begun.add(fact.number)
            elif (number := getattr(fact, "number", None)) in self._asked and number not in begun:
                return False
        return True


def _grouped(facts: Sequence[Fact], key: Callable[[int, Fact], Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index, fact in enumerate(facts):
        groups.setdefault(key(index, fact), []).append(index)
    return list(groups.values())


def _kind(_index: int, fact: Fact) -> Hashable:
    return type(fact)


def _subject(index: int, fact: Fact) -> Hashable:
    """All facts of one request; else a single fact."""
    number = getattr(fact, "number", None)
    return ("fact", index) if number is None else ("request", number)


def _itself(index: int, _fact: Fact) -> Hashable:
    return index
