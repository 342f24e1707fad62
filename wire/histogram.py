"""Histograms with fixed buckets, and a bounded number of them by labels: figures that add up over many supervisors.

Pure. An observation is a search in a short tuple and an addition.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

OTHER = "other"
"""The label of what has found no place of its own."""
TURN_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""Seconds, for what lasts as long as a turn: from an answer out of memory to an hour of work."""


class HistogramData(msgspec.Struct, frozen=True):
    """One histogram at one moment. ``counts``: of each bucket alone; the last is that of what is above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """Counts values by the first of ``bounds``, in rising order, that they do not exceed."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def data(self) -> HistogramData:
        """What has been counted so far."""
        return HistogramData(self._bounds, tuple(self._counts), self._sum)


class BoundedSeries(Generic[T]):
    """One ``T`` for each tuple of labels, the more general label first, for at most ``limit`` tuples.

    Beyond that tuples share one, in which labels from the last to the first are ``other``. There are never more than
    ``limit`` of each such form and one of nothing but ``other``; none is ever removed: a figure must not go down.
    """

    def __init__(self, make: Callable[[], T], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._series: dict[tuple[str, ...], T] = {}

    def get(self, labels: tuple[str, ...]) -> T:
        """That of the labels, or the one that they share."""
        try:
            return self._series[labels]
        except KeyError:
            return self._series[self._place(labels)]

    def labels_of(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The labels under which ``get`` counts for these."""
        return labels if labels in self._series else self._place(labels)

    def items(self) -> Iterator[tuple[tuple[str, ...], T]]:
        """All there are, each with its labels."""
        yield from self._series.items()

    def _place(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Labels that have a place: these, or the most exact that are left."""
        room = self._limit
        for known in range(len(labels), 0, -1):
            place = (*labels[:known], *(OTHER,) * (len(labels) - known))
            if place in self._series or len(self._series) < room:
                break
            room += self._limit
        else:
            place = (OTHER,) * len(labels)
        if place not in self._series:
            self._series[place] = self._make()
        return place
