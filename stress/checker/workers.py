"""Checks of I3, I8, I9, I10: at most ``max`` workers, none taken from a turn, capacity returns, status is true."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from stress.checker.base import CheckRules, InvariantCheck, ObservedRequest, ObservedState, Violation
from stress.facts import (
    ALL_WORKERS,
    Fact,
    FaultInjected,
    PoolEvent,
    ProcessSample,
    RequestAnswered,
    StatusSample,
    SupervisorEnded,
    SupervisorStarted,
    WaitingEnded,
)

_REMOVAL_EVENTS = frozenset({"worker_evicted", "session_parked"})
_VOLUNTARY_REASONS = frozenset({"", "evicted", "rebound", "idle", "retired"})
"""Reasons for which the pool itself unbinds a session; an eviction event has none."""
_OUTCOME_SECONDS = 0.25
"""Seconds from the end of a turn to the event with its outcome."""
_CLOCK_SECONDS = 0.05
"""Seconds by which a turn may seem shorter than requested, which is in whole milliseconds."""
_SPAWN_SLACK = 1.5
"""Workers beyond the bucket, because start times in ``/proc`` are in hundredths of a second."""


class MaxWorkers(InvariantCheck):
    """I3: never more live worker processes than max."""

    invariant = "I3"

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:  # noqa: ARG002 - the signature of checks
        """Count live workers."""
        if isinstance(fact, ProcessSample):
            self.checked += 1
            if len(fact.workers) > self.rules.max_workers:
                pids = tuple(worker.pid for worker in fact.workers)
                yield Violation(f"{len(pids)} workers are alive, {self.rules.max_workers} may be", pids=pids)


class NoMidTurnEviction(InvariantCheck):
    """I8: no worker is evicted, and no session parked, in mid-turn.

    A worker is free once all output of its turn has arrived, and the outcome is published right after. A turn was
    therefore cut off if it was shorter than requested, or if its outcome does not follow the removal at once. Removals
    after a fault or by an operator are not checked.
    """

    invariant = "I8"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._removals: dict[int, PoolEvent] = {}

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check each removal at once, and again when the outcome of the turn arrives."""
        if isinstance(fact, SupervisorEnded):
            self._removals.clear()
        elif isinstance(fact, RequestAnswered) and (moved := self._removals.pop(fact.number, None)) is not None:
            is_late = fact.at - moved.at > _OUTCOME_SECONDS + state.delay()
            if is_late and not state.clock_was_set_since(moved.t):
                yield _eviction_violation(moved, fact.number)
        elif isinstance(fact, PoolEvent) and fact.what in _REMOVAL_EVENTS and fact.why in _VOLUNTARY_REASONS:
            self.checked += 1
            for number in state.running.get(fact.worker, ()):
                entry = state.requests.get(number)
                if entry is not None and _is_cut_short(fact, entry, state):
                    yield _eviction_violation(fact, number)
                else:
                    self._removals.setdefault(number, fact)


def _eviction_violation(moved: PoolEvent, number: int) -> Violation:
    what = f"{moved.what} {moved.session} {moved.worker} ({moved.why}) in the turn of request {number}"
    return Violation(what, (number,), moved.worker)


def _is_cut_short(moved: PoolEvent, entry: ObservedRequest, state: ObservedState) -> bool:
    """Whether its turn must still be running; False if a fault or a timeout may have ended it."""
    if entry.started is None or entry.asked.faulty or state.clock_was_set_since(entry.started):
        return False
    slack = _CLOCK_SECONDS + state.delay()
    time_is_up = entry.accepted is None or moved.at > entry.accepted_at + entry.asked.timeout - slack
    is_hit = any(
        fault.hurts and fault.worker in (entry.worker, ALL_WORKERS) for fault in state.faults_since(entry.started)
    )
    return not time_is_up and not is_hit and moved.at - entry.started_at < entry.asked.turn - slack


class _PendingReplacement(NamedTuple):
    """A kill at ``t``, with ``alive`` workers before it. ``victims``: pid and start time as last seen."""

    t: float
    alive: int
    pid: int
    victims: frozenset[tuple[int, int]]


class CapacityRecovery(InvariantCheck):
    """I9: a killed worker is replaced in time, and no faster than the spawn bucket allows."""

    invariant = "I9"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._alive = 0
        self._is_first = True
        self._pending: deque[_PendingReplacement] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._tokens = float(rules.spawn_burst)
        self._refilled = 0.0

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check the number of workers after each kill, and the rate of new ones."""
        match fact:
            case FaultInjected(action="kill") if fact.pid:
                victims = frozenset(seen for seen in self._seen if seen[0] == fact.pid)
                self._pending.append(_PendingReplacement(fact.t, self._alive, fact.pid, victims))
            case SupervisorStarted():
                self._tokens, self._refilled = float(self.rules.spawn_burst), fact.t
                self._reset()
            case SupervisorEnded():
                self._reset()
            case WaitingEnded():
                self._pending.clear()
            case ProcessSample():
                yield from self._count(fact, state)
                yield from self._check_replacements(fact, state)
            case _:
                pass

    def _reset(self) -> None:
        """Forget the workers of a supervisor that has ended, and the replacements due."""
        self._pending.clear()
        self._seen = set()
        self._alive = 0

    def _count(self, fact: ProcessSample, state: ObservedState) -> Iterator[Violation]:
        alive = {(worker.pid, worker.started) for worker in fact.workers}
        new = frozenset() if self._is_first else alive - self._seen  # those of the first sample may be old
        self._is_first = False
        self._seen = alive
        self._alive = len(alive)
        refilled = max(0.0, fact.t - self._refilled) * self.rules.spawn_rate
        self._tokens = min(float(self.rules.spawn_burst), self._tokens + refilled - len(new))  # spread over the time
        self._refilled = fact.t
        if new:
            self.checked += 1
        held_up = state.delay() * self.rules.spawn_rate  # starts that were allowed one by one, and came at once
        if self._tokens < -_SPAWN_SLACK - held_up:
            yield Violation(
                "workers were started faster than the spawn bucket allows", pids=tuple(pid for pid, _ in new)
            )
            self._tokens = 0.0

    def _check_replacements(self, fact: ProcessSample, state: ObservedState) -> Iterator[Violation]:
        limit = self.rules.recovery + self.rules.backoff_max + state.delay()
        while self._pending:
            t, count, pid, victims = self._pending[0]
            is_missing = self._alive < count or bool(victims & self._seen)
            if is_missing and fact.t - t <= limit:
                return
            self._pending.popleft()
            self.checked += 1
            if is_missing:
                what = f"{limit:.1f} s after a worker was killed there are {self._alive} instead of {count}"
                yield Violation(what, pids=(pid,))


class StatusMatchesProc(InvariantCheck):
    """I10: status names the workers that ``/proc`` has, and every grant is released, lost or in force."""

    invariant = "I10"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._unknown: frozenset[int] = frozenset()
        self._gone: frozenset[int] = frozenset()
        self._life = 0

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:  # noqa: ARG002 - the signature of checks
        """Compare each sample with ``/proc`` before and after it; a difference must show twice."""
        if not isinstance(fact, StatusSample):
            return
        if fact.life != self._life:
            self._unknown = self._gone = frozenset()
            self._life = fact.life
        self.checked += 1
        if fact.max != self.rules.max_workers:
            yield Violation(f"status says that {fact.max} workers may be, {self.rules.max_workers} may")
        shown = frozenset(worker.pid for worker in fact.workers if worker.pid is not None and worker.state != "dead")
        unknown = (frozenset(fact.before) & frozenset(fact.after)) - shown
        gone = shown - frozenset(fact.before) - frozenset(fact.after)
        for pid in unknown & self._unknown:
            yield Violation(f"process {pid} is a live worker that status does not know", pids=(pid,))
        for pid in gone & self._gone:
            yield Violation(f"status knows a worker {pid} which is not there", pids=(pid,))
        self._unknown, self._gone = unknown, gone
        if fact.grants != fact.releases + fact.lost + fact.active:
            yield Violation(f"{fact.grants} grants, but {fact.releases} + {fact.lost} + {fact.active} ends and holds")
