"""Things in order of rank, the smallest first; anything may be taken out of the middle, in O(log n) on average."""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Ordered", "Place", "Rank"]

Rank = tuple[int, int]
T = TypeVar("T")
_COMPACT_FROM = 64


class Place(Generic[T]):
    """Where an item stands in an ``Ordered``; empty once it has been taken out."""

    __slots__ = ("item", "rank")

    def __init__(self, rank: Rank, item: T) -> None:
        self.rank = rank
        self.item: T | None = item


class Ordered(Generic[T]):
    """A heap with lazy deletion: empty places leave when they come up, or when they are the majority."""

    __slots__ = ("_heap", "_sequence", "_size")

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, Place[T]]] = []
        self._sequence = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """The items, in no order."""
        return (place.item for _, _, place in self._heap if place.item is not None)

    def add(self, rank: Rank, item: T) -> Place[T]:
        """Put an item in; among equal ranks the first comes first."""
        place = Place(rank, item)
        self._sequence += 1
        self._size += 1
        heapq.heappush(self._heap, (rank, self._sequence, place))
        return place

    def remove(self, place: Place[T]) -> None:
        """Take an item out, wherever it stands. It must be in."""
        place.item = None
        self._size -= 1
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * self._size:
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapq.heapify(self._heap)

    def first(self) -> T | None:
        """The item of the smallest rank; None where there is none."""
        heap = self._heap
        while heap:
            item = heap[0][2].item
            if item is not None:
                return item
            heapq.heappop(heap)
        return None
