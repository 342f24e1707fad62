"""Waiters in line: one queue for each profile and privilege, and the queues of those that wait for the same thing."""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pool.transitions import WaiterState

if TYPE_CHECKING:
    from pool.records import ProfileRecord, Waiter

_COMPACT_FROM = 64
_QUEUED = WaiterState.QUEUED


class ProfileQueue:
    """The queued waiters of one kind and privilege, best first."""

    __slots__ = ("_heap", "condition", "condition_rank", "privileged", "profile_record", "size")

    def __init__(self, kind: "ProfileRecord", *, privileged: bool) -> None:
        self.profile_record = kind
        self.privileged = privileged
        self.size = 0
        self.condition: ConditionQueue | None = None
        self.condition_rank: tuple[float, int] = (0.0, 0)
        self._heap: list[tuple[float, int, Waiter]] = []

    def push(self, waiter: "Waiter") -> None:
        """Add a waiter that has just become QUEUED."""
        self.size += 1
        heapq.heappush(self._heap, (waiter.sort_key, waiter.sequence, waiter))
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * self.size:
            self._heap = [(w.sort_key, w.sequence, w) for w in {entry[2] for entry in self._heap} if w.state is _QUEUED]
            heapq.heapify(self._heap)

    def head(self) -> "Waiter | None":
        """The best waiter; None when there is none."""
        heap = self._heap
        while heap:
            waiter = heap[0][2]
            if waiter.state is _QUEUED:
                return waiter
            heapq.heappop(heap)
        return None

    def __iter__(self) -> Iterator["Waiter"]:
        """All queued waiters in order; O(n log n), for reports."""
        unique = {entry[2] for entry in self._heap if entry[2].state is _QUEUED}
        return iter(sorted(unique, key=lambda waiter: waiter.rank))


class ConditionQueue:
    """Lines that wait for the same thing (``why``, in words), the best head first. A line is in one at most."""

    __slots__ = ("_heap", "count", "reason")

    def __init__(self, why: str) -> None:
        self.reason = why
        self.count = 0
        self._heap: list[tuple[float, int, ProfileQueue]] = []

    def add(self, line: ProfileQueue) -> None:
        """Put a line here (from wherever it was), or renew its place after its head became better."""
        head = line.head()
        if head is None:
            self.remove(line)
            return
        if line.condition is not self:
            self.remove(line)
            line.condition = self
            self.count += 1
        line.condition_rank = head.rank
        heapq.heappush(self._heap, (head.sort_key, head.sequence, line))
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * self.count:
            self._heap = [(*each.condition_rank, each) for each in {e[2] for e in self._heap} if each.condition is self]
            heapq.heapify(self._heap)

    def peek(self) -> ProfileQueue | None:
        """The line whose head is the best, with its place renewed where the head has changed."""
        heap = self._heap
        while heap:
            key, sequence, line = heap[0]
            if line.condition is not self or line.condition_rank != (key, sequence):
                heapq.heappop(heap)
                continue
            head = line.head()
            if head is None:
                heapq.heappop(heap)
                self.remove(line)
            elif head.rank == line.condition_rank:
                return line
            else:
                line.condition_rank = head.rank
                heapq.heapreplace(heap, (head.sort_key, head.sequence, line))
        return None

    def pop(self) -> ProfileQueue | None:
        """Remove and return the best line."""
        line = self.peek()
        if line is not None:
            heapq.heappop(self._heap)
            self.remove(line)
        return line

    @staticmethod
    def remove(line: ProfileQueue) -> None:
        """Take a line from whatever gate it is at."""
        if line.condition is not None:
            line.condition.count -= 1
            line.condition = None
