"""What ``statistics()`` returns: a frozen, consistent picture of the pool; ``pool status --json`` prints it.

Times are seconds, sizes bytes. Everything about requests, sessions and workers comes from the machine in one step;
only pid, memory and CPU are measured at the processes.
"""

from collections.abc import Mapping

import msgspec

from pool.life import WorkerLife
from pool.quantiles import LatencyFigures, RecentLatencies
from pool.settings import PoolSettings

__all__ = ["LatencyRecorder", "PoolStatistics"]


class LatencyRecorder:
    """The pool's latencies: request to grant, reset, spawn to ready, turn."""

    def __init__(self) -> None:
        self.acquire = RecentLatencies()
        self.reset = RecentLatencies()
        self.spawn = RecentLatencies()
        self.turn = RecentLatencies()


class Latencies(msgspec.Struct, frozen=True):
    """Quantiles of each kind."""

    acquire: LatencyFigures
    reset: LatencyFigures
    spawn: LatencyFigures
    turn: LatencyFigures


class Guarantee(msgspec.Struct, frozen=True):
    """How sure it is that no descendant of a worker survives it."""

    level: str
    text: str
