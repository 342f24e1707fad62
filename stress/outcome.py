"""The result of a run: figures, each second, every broken promise with the facts that show it.

``--json``, the final table and the report all present a ``StressResult``.
"""

import msgspec

from stress.facts import Fact, FaultInjected
from stress.plan import Plan

INVARIANTS = {
    "I1": "one outcome for each request: none lost, none reported twice, none sent again",
    "I2": "no text of one session ever reaches another",
    "I3": "never more worker processes than max",
    "I4": "no process of a supervisor left 2 s after its end",
    "I5": "first come, first served within profile and priority; no starvation",
    "I6": "no request waits while a matching worker is idle; every wait ends by its deadline + 50 ms",
    "I7": "bounded memory, no leaked files, no zombies",
    "I8": "no eviction in mid-turn",
    "I9": "lost capacity returns, within the spawn rate",
    "I10": "status equals /proc; grants = releases + active",
    "I11": "a reused pid is never signalled",
    "I12": "a fault in one worker affects no other; their p99 stays within 2x",
}


class ViolationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise: invariant, time, sentence, and the facts around it in order.

    ``shortest``: the fewest facts that show it, for the first violation of each invariant, if found.
    """

    invariant: str
    t: float
    what: str
    history: tuple[Fact, ...] = ()
    shortest: tuple[Fact, ...] = ()


class InvariantVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant: number of checks and of violations. ``note``: what limits the judgement."""

    invariant: str
    title: str
    checked: int
    broken: int
    note: str = ""


class LatencyQuantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles in seconds of the time beyond the requested turn; 0 without requests."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class SecondMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the run, counted from 0; gauges have their last value in it.

    ``answered``: completed; ``failed``: any other outcome, or refused. ``waiting``: accepted and not begun;
    ``running``: begun and not ended. ``workers``: as in ``/proc``; ``rss`` in bytes and ``fds``: the supervisor's, 0
    while there is none. ``p50``, ``p99``: of the answers, as in ``LatencyQuantiles``. ``delayed``: seconds by which the
    machine was late.
    """

    second: int
    asked: int
    answered: int
    failed: int
    waiting: int
    running: int
    workers: int
    rss: int
    fds: int
    p50: float
    p99: float
    faults: int
    delayed: float


class StressResult(msgspec.Struct, frozen=True, kw_only=True):
    """``fates``: number of requests by outcome; ``faults``: in order of injection.

    ``faulty``: number of requests to faulty workers (F2, F3). ``machine``: name to value (CPUs, memory, kernel,
    Python). ``violations``: the first ones of each invariant; the verdicts count all of them. ``harms``: number of
    requests that were ``lost`` or ``duplicated`` or had ``foreign`` words; zeros are left out.
    """

    plan: Plan
    machine: dict[str, str | int | float]
    began_at: float
    seconds: float
    lives: int
    fates: dict[str, int]
    latencies: LatencyQuantiles
    calm_latencies: LatencyQuantiles
    faults: tuple[FaultInjected, ...]
    verdicts: tuple[InvariantVerdict, ...]
    violations: tuple[ViolationReport, ...]
    series: tuple[SecondMetrics, ...]
    harms: dict[str, int] = {}
    faulty: int = 0
    log: str = ""
    """Path of the supervisor's log, if it was kept."""

    @property
    def all_kept(self) -> bool:
        """Whether every promise was kept."""
        return not any(verdict.broken for verdict in self.verdicts)

    @property
    def kept_sentence(self) -> str:
        """The verdict of a run without violations; it claims nothing of invariants that were never checked."""
        seen = "" if all(verdict.checked for verdict in self.verdicts) else "that was checked was "
        return f"Every promise {seen}kept"

    @property
    def is_empty(self) -> bool:
        """Whether no request was completed, which leaves almost nothing to check."""
        return not self.fates.get("completed")

    @property
    def requests(self) -> int:
        """Number of requests made."""
        return sum(self.fates.values())
