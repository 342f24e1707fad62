"""What ``Pool.statistics()`` returns, with latency quantiles over the most recent samples, and their histograms.

Times are seconds, sizes bytes. Requests, sessions and workers come from the machine in one step; only pid, memory and
CPU are measured at the processes.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pool.agent_report import AgentReport
from pool.settings import PoolSettings
from pool.snapshot import (
    Counters,
    MachineSnapshot,
    PoolCounts,
    ProfileSnapshot,
    SessionSnapshot,
    WaiterSnapshot,
    WorkerSnapshot,
)
from pool.worker_task import WorkerTask
from profiles import CapabilityProfile
from rpc.cgroup import OrphanGuarantee
from rpc.transport import ProcessFacts
from wire.histogram import TURN_BOUNDS, BoundedSeries, Histogram, HistogramData
from wire.units import ByteCount, Seconds


class LatencyStats(msgspec.Struct, frozen=True):
    """Quantiles in seconds over the recent samples, and how many samples there were in all."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


_LIMIT = 32
"""Profiles with histograms of their own; each of them is 80 lines of ``/metrics``."""
_BOUNDS = {
    "acquire": (
        *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
        *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
    ),
    "reset": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "spawn": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "turn": TURN_BOUNDS,
}
"""Seconds: an acquisition lasts from a warm worker's grant to ``waiting_timeout``."""


class ProfileLatencies(msgspec.Struct, frozen=True):
    """The histograms of one profile, in seconds; beyond a number of profiles, of all others under ``other``."""

    agent: str
    profile: str
    acquire: HistogramData
    reset: HistogramData
    spawn: HistogramData
    turn: HistogramData


class RecentLatencies:
    """Keeps the last ``window`` samples; quantiles are computed at the call."""

    def __init__(self, window: int = 1024) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._count = 0

    def add(self, seconds: float) -> None:
        """Record one sample."""
        self._recent.append(seconds)
        self._count += 1

    def stats(self) -> LatencyStats:
        """Nearest-rank quantiles of what is kept."""
        if not self._recent:
            return LatencyStats()
        ordered = sorted(self._recent)
        last = len(ordered) - 1
        return LatencyStats(self._count, ordered[last // 2], ordered[round(last * 0.99)], ordered[-1])


class _Latency(RecentLatencies):
    """Recent samples of all profiles, and a histogram for each; ``index``: its place among the histograms."""

    def __init__(self, series: BoundedSeries[tuple[Histogram, ...]], index: int) -> None:
        super().__init__()
        self._series = series
        self._index = index

    def add_for(self, profile: CapabilityProfile, seconds: float) -> None:
        """Record one sample of a profile."""
        self._recent.append(seconds)
        self._count += 1
        self._series.get((profile.agent, profile.signature[:8]))[self._index].observe(seconds)


class LatencyRecorder:
    """The pool's latencies: request to grant, reset, spawn to ready, turn."""

    def __init__(self) -> None:
        self._series: BoundedSeries[tuple[Histogram, ...]] = BoundedSeries(
            lambda: tuple(map(Histogram, _BOUNDS.values())), _LIMIT
        )
        self.acquire, self.reset, self.spawn, self.turn = (_Latency(self._series, at) for at in range(len(_BOUNDS)))

    def histograms(self, profiles: Iterable[ProfileSnapshot] = ()) -> list[ProfileLatencies]:
        """All histograms; each of these profiles has a place among them, also where nothing was observed."""
        for each in profiles:
            self._series.get((each.agent, each.profile))
        return [
            ProfileLatencies(agent, profile, *(histogram.data() for histogram in histograms))
            for (agent, profile), histograms in self._series.items()
        ]


class PoolSummary(PoolCounts, frozen=True, kw_only=True):
    """The pool's numbers with its mode (``running``, ``paused``, ``draining``, ``closed``) and limits."""

    min: int
    mode: str
    limits: dict[str, Any]


class WorkerStatus(WorkerSnapshot, frozen=True, kw_only=True):
    """One worker with the facts of its process. None = not known (yet)."""

    pid: int | None
    turn_age: float | None
    rss: int | None
    cpu: float | None
    suspended: bool
    last_ping: float | None
    stray_lines: int
    """Lines on its stdout that were no message, so far."""
    report: AgentReport | msgspec.UnsetType = msgspec.UNSET
    """What its program says of itself and of its conversation; unset where its dialect does not know that."""


class PoolLatencies(msgspec.Struct, frozen=True):
    """Quantiles of each kind."""

    acquire: LatencyStats
    reset: LatencyStats
    spawn: LatencyStats
    turn: LatencyStats


class Guarantee(msgspec.Struct, frozen=True):
    """How sure it is that no descendant of a worker survives it: a level and a sentence."""

    level: str
    text: str


class PoolStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture. ``latency`` covers the last 1,024 of each kind."""

    pool: PoolSummary
    counters: Counters
    workers: tuple[WorkerStatus, ...]
    waiting: tuple[WaiterSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    profiles: tuple[ProfileSnapshot, ...]
    latency: PoolLatencies
    guarantee: Guarantee


def assemble_statistics(
    snapshot: MachineSnapshot,
    settings: PoolSettings,
    lives: Mapping[str, WorkerTask],
    latencies: LatencyRecorder,
    guarantee: OrphanGuarantee,
    *,
    now: float,
) -> PoolStatistics:
    """Put the machine's snapshot and the processes' facts together."""
    return PoolStatistics(
        pool=PoolSummary(
            **msgspec.structs.asdict(snapshot.counts), min=settings.min, mode=snapshot.mode, limits=_limits(settings)
        ),
        counters=snapshot.counters,
        workers=tuple(_worker(worker, lives.get(worker.id), now) for worker in snapshot.workers),
        waiting=snapshot.waiters,
        sessions=snapshot.sessions,
        profiles=snapshot.profiles,
        latency=PoolLatencies(
            latencies.acquire.stats(),
            latencies.reset.stats(),
            latencies.spawn.stats(),
            latencies.turn.stats(),
        ),
        guarantee=Guarantee(guarantee.level, guarantee.description),
    )


def _limits(settings: PoolSettings) -> dict[str, Any]:
    """The settings as plain numbers: seconds and bytes."""
    return {name: _plain(value) for name, value in msgspec.structs.asdict(settings).items()}


def _plain(value: Any) -> Any:
    """The units of settings are subclasses of numbers, which an encoder does not take."""
    if isinstance(value, Seconds):
        return float(value)
    return int(value) if isinstance(value, ByteCount) else value


def _worker(worker: WorkerSnapshot, life: WorkerTask | None, now: float) -> WorkerStatus:
    facts = life.facts() if life else ProcessFacts()
    return WorkerStatus(
        **msgspec.structs.asdict(worker),
        pid=life.pid if life else None,
        turn_age=life.turn_age(now) if life else None,
        rss=facts.rss,
        cpu=facts.cpu,
        suspended=facts.suspended,
        last_ping=None if life is None or life.health.last_ping is None else now - life.health.last_ping,
        stray_lines=0 if life is None else life.stray_lines,
        report=(life and life.report(worker.session)) or msgspec.UNSET,
    )
