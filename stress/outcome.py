"""What came of a run: every figure, each second of it, every broken promise with the facts that show it.

``StressResult`` is what ``--json`` writes, what the table at the end shows and what the report is drawn from.
"""

import msgspec

from stress.facts import Fact, FaultInjected
from stress.plan import Plan

INVARIANTS = {
    "I1": "one outcome for each request: none lost, none told twice, nothing sent again",
    "I2": "no word of one session ever reaches another",
    "I3": "never more worker processes than max",
    "I4": "the supervisor gone: no process of it left 2 s later",
    "I5": "first come, first served within profile and priority; nobody starves",
    "I6": "nobody waits beside a worker that fits; every waiter ends by its deadline + 50 ms",
    "I7": "bounded memory, no open files left, no zombies",
    "I8": "no eviction in mid-turn",
    "I9": "lost capacity comes back, within the spawn rate",
    "I10": "status equals /proc; grants = releases + active",
    "I11": "a stranger with a dead worker's pid is never signalled",
    "I12": "a fault in one worker stays in that worker; others' p99 within 2x",
}


class ViolationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise: which, when it was seen, in a sentence, and what was seen around it, in order.

    ``shortest``: the fewest facts that show it, for the first of each invariant, where they were found.
    """

    invariant: str
    t: float
    what: str
    history: tuple[Fact, ...] = ()
    shortest: tuple[Fact, ...] = ()


class InvariantVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """About one invariant: how often it was looked at, how often it was broken. ``note``: what limits the judgement."""

    invariant: str
    title: str
    checked: int
    broken: int
    note: str = ""


class LatencyQuantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles in seconds, of what a request took beyond what its turn was told to take; 0 where there were none."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class SecondMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the run, counted from 0. Counts are of that second, figures the last ones seen in it.

    ``answered``: completed; ``failed``: any other outcome, or refused. ``waiting``: accepted and not begun;
    ``running``: begun and not ended. ``workers`` as ``/proc`` has them; ``rss`` in bytes, ``fds``: the supervisor's,
    0 while there is none. ``p50`` and ``p99`` of the answers in it, as in ``LatencyQuantiles``. ``delayed``: how
    late the machine has made things.
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
    """All of it. ``fates``: how many requests came to which end; ``faults``: in the order in which they were injected.

    ``faulty``: how many requests were to workers that misbehave; what F2 and F3 do is done by them.
    ``machine``: name to value (CPUs, memory, kernel, Python). ``violations`` are the first ones of each invariant, the
    verdicts count all of them. ``harms``: how often a request was ``lost`` or ``duplicated``, or had ``foreign`` words;
    what is 0 is left out.
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
    """Where the supervisor's log was left, where it was."""

    @property
    def all_kept(self) -> bool:
        """Whether every promise was kept."""
        return not any(verdict.broken for verdict in self.verdicts)

    @property
    def kept_sentence(self) -> str:
        """What is said of a green one: a promise that was never looked at was not seen to be kept."""
        seen = "" if all(verdict.checked for verdict in self.verdicts) else "that was looked at was "
        return f"Every promise {seen}kept"

    @property
    def is_empty(self) -> bool:
        """Whether not one request was completed: where nothing went well there was next to nothing to look at."""
        return not self.fates.get("completed")

    @property
    def requests(self) -> int:
        """How many were made."""
        return sum(self.fates.values())
