"""Checks of I4, I7, I11, I12: no leftovers, bounded resources, no signal to a reused pid, faults stay local."""

import math
import signal
from collections.abc import Iterator, Sequence

from stress.checker.base import CheckRules, InvariantCheck, ObservedRequest, ObservedState, Violation
from stress.facts import (
    ALL_WORKERS,
    DAMAGED_TRANSCRIPT,
    Fact,
    FaultInjected,
    LeftoverProcesses,
    OutcomeReceived,
    PoolDrained,
    ProcessSample,
    RequestAnswered,
    ReusedPid,
    SupervisorEnded,
    SupervisorStarted,
    WaitingEnded,
)

_MIB = 1024 * 1024
_MIN_SIZES = 120


class NoLeftovers(InvariantCheck):
    """I4: no process of a supervisor outlives it; it ends only on a signal, with code 0 unless killed."""

    invariant = "I4"

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:  # noqa: ARG002 - the signature of checks
        """Check the ends of supervisors."""
        match fact:
            case LeftoverProcesses():
                self.checked += 1
                if fact.pids:
                    what = f"{len(fact.pids)} processes are left {fact.seconds:g} s after the supervisor's end"
                    yield Violation(what, pids=fact.pids)
            case SupervisorEnded():
                self.checked += 1
                if not fact.signals:
                    yield Violation(f"the supervisor ended by itself, with code {fact.code}")
                elif fact.code not in _expected_codes(fact.signals):
                    yield Violation(f"the supervisor ended with code {fact.code} after a signal to stop")
            case _:
                pass


def _expected_codes(signals: Sequence[int]) -> set[int]:
    """The exit codes allowed: 0 for any number of signals to stop, or killed."""
    return {0, -signal.SIGKILL} if signal.SIGKILL in signals else {0}


class BoundedResources(InvariantCheck):
    """I7: the supervisor's memory and open files, and children that are not reaped."""

    invariant = "I7"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._zombies: dict[int, float] = {}
        self._sizes: list[int] = []
        self._is_too_large = False

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check the supervisor's figures in ``/proc``."""
        match fact:
            case ProcessSample():
                yield from self._check_zombies(fact, state)
                yield from self._check_size(fact.rss)
            case SupervisorStarted() | SupervisorEnded():
                self._zombies.clear()
                self._sizes.clear()
            case PoolDrained():
                self.checked += 1
                yield from self._check_size(fact.rss)
                yield from self._check_files(fact)
                yield from self._check_leftovers(fact)
            case WaitingEnded() if self.rules.rss_growth:
                yield from self._check_growth()
            case _:
                pass

    def _check_zombies(self, fact: ProcessSample, state: ObservedState) -> Iterator[Violation]:
        self._zombies = {pid: self._zombies.get(pid, fact.t) for pid in fact.zombies}
        for pid, since in list(self._zombies.items()):
            if fact.t - since > self.rules.zombie_seconds + state.delay():
                del self._zombies[pid]
                yield Violation(f"process {pid} has been a zombie for over a second", pids=(pid,))

    def _check_size(self, rss: int | None) -> Iterator[Violation]:
        if rss is None:
            return
        self.checked += 1
        self._sizes.append(rss)
        is_too_large = rss > self.rules.rss_limit
        if is_too_large and not self._is_too_large:
            yield Violation(f"the supervisor has {rss // _MIB} MiB, {self.rules.rss_limit // _MIB} are the limit")
        self._is_too_large = is_too_large

    def _check_files(self, fact: PoolDrained) -> Iterator[Violation]:
        if fact.fds is None or fact.fds_before is None:
            self.note = "its open files cannot be counted by who runs this"
        elif fact.fds > fact.fds_before + self.rules.fds_slack:
            yield Violation(f"{fact.fds} files are open when all is done, {fact.fds_before} were at the beginning")

    def _check_leftovers(self, fact: PoolDrained) -> Iterator[Violation]:
        if fact.workers or fact.zombies:
            yield Violation(f"{fact.workers} workers and {fact.zombies} zombies are there after the pool was drained")

    def _check_growth(self) -> Iterator[Violation]:
        """Compare the end with the moment after the warm-up, which is the first third of its life."""
        if len(self._sizes) < _MIN_SIZES:
            self.note = "too short to judge growth"
            return
        third, a_while = len(self._sizes) // 3, len(self._sizes) // 12
        warm, last = max(self._sizes[third : third + a_while]), max(self._sizes[-a_while:])
        self.checked += 1
        if last > warm * self.rules.rss_growth:
            yield Violation(f"the supervisor grew from {warm // _MIB} to {last // _MIB} MiB after the warm-up")


class NoSignalToReusedPid(InvariantCheck):
    """I11: a process with the pid of a dead worker is never signalled."""

    invariant = "I11"

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:  # noqa: ARG002 - the signature of checks
        """Check the fate of processes that got a reused pid."""
        if isinstance(fact, ReusedPid):
            self.checked += 1
            if fact.signalled:
                yield Violation(f"a stranger with the pid {fact.pid} of a dead worker was signalled", pids=(fact.pid,))


_WORKER_FAULT_CODES = frozenset({"worker_exited", "worker_stalled", DAMAGED_TRANSCRIPT})
_MIN_SAMPLES = 100
_NOTICEABLE_SECONDS = 0.25
"""Seconds; below, a doubled wait cannot be distinguished from other work on the machine."""
_AFTERMATH_SECONDS = 5.0
"""Seconds after a fault of all workers in which requests may still fail for it."""
_RECOVERY_SECONDS = 30.0
"""Seconds after a fault of all workers in which requests may wait longer, as all workers may have to be started."""


class FaultIsolation(InvariantCheck):
    """I12: only requests on a faulted worker fail for it; the others wait at most twice as long."""

    invariant = "I12"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._calm: list[float] = []
        self._others: list[float] = []

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check each failure, and all delays at the end."""
        if isinstance(fact, WaitingEnded):
            yield from self._compare_waits()
        if isinstance(fact, OutcomeReceived):
            self.checked += math.isfinite(self.rules.max_delivery_delay)
            if fact.seconds > self.rules.max_delivery_delay + state.delay():
                yield Violation(f"front end {fact.front_end} received an outcome {fact.seconds:.3f} s after others")
        if not isinstance(fact, RequestAnswered):
            return
        entry = state.requests.get(fact.number)
        if entry is None or entry.ended is not None or entry.asked.faulty:
            return
        if fact.code in _WORKER_FAULT_CODES:
            self.checked += 1
            if not self._is_explained(fact.code, entry, state):
                worker = entry.worker or "no worker"
                what = f"request {fact.number} on {worker} ended with {fact.code}, and nothing was done to that worker"
                yield Violation(what, (fact.number,), entry.worker)
        elif fact.reason == "completed":
            self._record_delay(fact, entry, state)

    def _is_explained(self, code: str, entry: ObservedRequest, state: ObservedState) -> bool:
        """Any fault may have damaged a transcript, long before it is read again."""
        if code == DAMAGED_TRANSCRIPT:
            return state.may_be_damaged(entry.asked.session)
        return self._is_affected(entry, state, _AFTERMATH_SECONDS)

    def _is_affected(self, entry: ObservedRequest, state: ObservedState, slack: float) -> bool:
        """``slack``: seconds after its end in which a fault of all workers still has an effect."""
        if entry.life != state.life:
            return True
        slack += state.delay()
        if any(fault.hurts and _affects_request(fault, entry, state, slack) for fault in state.faults_on(ALL_WORKERS)):
            return True
        if not entry.worker:
            return any(fault.hurts and fault.worker != ALL_WORKERS for fault in state.faults_since(entry.asked.t))
        return any(fault.hurts for fault in state.faults_on(entry.worker))

    def _record_delay(self, fact: RequestAnswered, entry: ObservedRequest, state: ObservedState) -> None:
        if not self.rules.compares_waits:
            return
        took = fact.t - entry.asked.t - entry.asked.turn
        if fact.t < self.rules.calm:
            self._calm += [took] if entry.asked.t >= self.rules.ramp else []
        elif (
            entry.asked.t > self.rules.calm
            and entry.is_alone
            and not self._is_affected(entry, state, _RECOVERY_SECONDS)
        ):
            self._others.append(took)

    def _compare_waits(self) -> Iterator[Violation]:
        if not self.rules.compares_waits or len(self._calm) < _MIN_SAMPLES:
            self.note = "too few workers, or requests before the first fault, to compare waiting times"
            return
        if len(self._others) < _MIN_SAMPLES:
            self.note = "nearly all requests waited for others of their session, or for a worker that was hit"
            return
        if quantile(self._calm, 0.5) > _NOTICEABLE_SECONDS:
            self.note = "requests waited before any fault too: the machine is too busy to compare waiting times"
            return
        self.checked += 1
        calm, others = quantile(self._calm, 0.99), quantile(self._others, 0.99)
        if others > 2 * calm and others > calm + _NOTICEABLE_SECONDS:
            yield Violation(
                f"p99 of those whose worker was let alone is {others:.3f} s, without faults it is {calm:.3f} s"
            )


def _affects_request(fault: FaultInjected, entry: ObservedRequest, state: ObservedState, slack: float) -> bool:
    """Whether a fault of all workers may affect the request: it was open then, or its worker started then."""
    end = fault.t + fault.seconds
    born = state.spawned_at.get(entry.worker, -math.inf)
    return end + slack >= entry.asked.t or fault.t <= born <= end + slack


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
