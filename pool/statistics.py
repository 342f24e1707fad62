"""What ``Pool.statistics()`` returns, with latency quantiles over the most recent samples.

Times are seconds, sizes bytes. Requests, sessions and workers come from the machine in one step; only pid, memory and
CPU are measured at the processes.
"""

from collections import deque
from collections.abc import Mapping
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
from pool.worker_interface import ProcessFacts
from pool.worker_task import WorkerTask
from rpc.cgroup import OrphanGuarantee
from wire.units import ByteCount, Seconds


class LatencyStats(msgspec.Struct, frozen=True):
    """Quantiles in seconds over the recent samples, and how many samples there were in all."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


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


class LatencyRecorder:
    """The pool's latencies: request to grant, reset, spawn to ready, turn."""

    def __init__(self) -> None:
        self.acquire = RecentLatencies()
        self.reset = RecentLatencies()
        self.spawn = RecentLatencies()
        self.turn = RecentLatencies()


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
