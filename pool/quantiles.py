"""Latency quantiles over the most recent samples: bounded memory, nothing to tune."""

from collections import deque

import msgspec

__all__ = ["LatencyFigures", "RecentLatencies"]


class LatencyFigures(msgspec.Struct, frozen=True):
    """Quantiles in seconds over the recent samples, and how many samples there were in all."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class RecentLatencies:
    """Keeps the last ``window`` samples; quantiles are computed when somebody asks."""

    def __init__(self, window: int = 1024) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._count = 0

    def add(self, seconds: float) -> None:
        """Record one sample."""
        self._recent.append(seconds)
        self._count += 1

    def figures(self) -> LatencyFigures:
        """Nearest-rank quantiles of what is kept."""
        if not self._recent:
            return LatencyFigures()
        ordered = sorted(self._recent)
        last = len(ordered) - 1
        return LatencyFigures(self._count, ordered[last // 2], ordered[round(last * 0.99)], ordered[-1])
