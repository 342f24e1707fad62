"""The waiting list: one line per profile and privilege, ordered by a static key, and gates where lines wait.

Ageing is linear, so the order of two waiters never changes: ``enqueued_at - priority * age_step``, first come first
served where that is equal. Each line is a heap with lazy deletion; a line that cannot be advanced rests at the gate
that keeps it (no process free, no token, back-off ...), so that looking for the best waiter never scans them all.
"""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pool.stimuli import Acquire
from pool.transitions import WAITER_TRANSITIONS, WaiterState
from wire.states import transition

if TYPE_CHECKING:
    from pool.records import ProfileRecord, SessionRecord
    from wire.timers import Timer


PRIVILEGED_PRIORITY = 10
"""Requests of at least this base priority may use the reserve."""
_COMPACT_FROM = 64


class Waiter:
    """One request on its way to a worker."""

    __slots__ = (
        "bounded",
        "deadline",
        "deferred",
        "enqueued_at",
        "nested",
        "priority",
        "privileged",
        "profile_record",
        "request",
        "room_only",
        "sequence",
        "session",
        "sort_key",
        "state",
        "timer",
        "was_enqueued",
    )

    def __init__(
        self, acquire: Acquire, session: "SessionRecord", kind: "ProfileRecord", now: float, sequence: int
    ) -> None:
        self.request = acquire.request
        self.session = session
        self.profile_record = kind
        self.priority = acquire.priority
        self.nested = acquire.nested
        self.room_only = acquire.spawn == "room"
        self.bounded = acquire.bounded
        self.privileged = acquire.nested or acquire.priority >= PRIVILEGED_PRIORITY
        self.enqueued_at = now
        self.sequence = sequence
        self.deadline = now
        self.sort_key = float("-inf")
        self.state = WaiterState.NEW
        self.timer: Timer | None = None
        self.deferred = False
        self.was_enqueued = False
        """Whether it was ever put on the waiting list."""

    @property
    def rank(self) -> tuple[float, int]:
        """Smaller is served first."""
        return self.sort_key, self.sequence


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

    def push(self, waiter: Waiter) -> None:
        """Add a waiter that has just become QUEUED."""
        self.size += 1
        heapq.heappush(self._heap, (waiter.sort_key, waiter.sequence, waiter))
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * self.size:
            self._heap = [(w.sort_key, w.sequence, w) for w in {entry[2] for entry in self._heap} if w.state is _QUEUED]
            heapq.heapify(self._heap)

    def head(self) -> Waiter | None:
        """The best waiter; None when there is none."""
        heap = self._heap
        while heap:
            waiter = heap[0][2]
            if waiter.state is _QUEUED:
                return waiter
            heapq.heappop(heap)
        return None

    def __iter__(self) -> Iterator[Waiter]:
        """All queued waiters in order; O(n log n), for reports."""
        unique = {entry[2] for entry in self._heap if entry[2].state is _QUEUED}
        return iter(sorted(unique, key=lambda waiter: waiter.rank))


class ConditionQueue:
    """Lines that wait for the same thing, the one with the best head first. A line is at one gate at most.

    ``why`` says in words, for status, what they wait for.
    """

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


class WaitingList:
    """All waiters that are queued or blocked, with the moves between their states and the bound on direct acquires."""

    __slots__ = (
        "_bounded",
        "_by_priority",
        "blocked",
        "nested",
        "pool_full",
        "queued",
        "quota",
        "ready",
        "room_only",
        "tokens",
    )

    def __init__(self) -> None:
        self.ready = ConditionQueue("next in line")
        """Lines to be looked at in this step."""
        self.pool_full = ConditionQueue("the pool is full, and no worker can make room")
        """Lines for which there is no process and none that could make room."""
        self.tokens = ConditionQueue("workers are started no faster (pool.spawn_rate)")
        """Lines that wait for the spawn bucket."""
        self.quota = ConditionQueue("only the reserve is left")
        """Ordinary lines while only the reserve is left."""
        self.queued = 0
        self.blocked = 0
        self.nested: dict[str, Waiter] = {}
        self.room_only: dict[str, Waiter] = {}
        """Those for whom a worker is being started, and who are refused where that comes to nothing."""
        self._bounded = 0
        self._by_priority: dict[int, dict[str, Waiter]] = {}

    def __len__(self) -> int:
        return self.queued + self.blocked

    @property
    def bounded(self) -> int:
        """How many of them count against ``waiting_capacity``."""
        return self._bounded

    def transition(self, waiter: Waiter, state: WaiterState) -> None:
        """Take ``waiter`` to ``state`` and keep every count in step."""
        old = waiter.state
        waiter.state = transition(WAITER_TRANSITIONS, old, state)
        was_waiting = old is _QUEUED or old is _BLOCKED
        is_waiting = state is _QUEUED or state is _BLOCKED
        if old is _QUEUED:
            self.queued -= 1
            waiter.profile_record.queues[waiter.privileged].size -= 1
        elif old is _BLOCKED:
            self.blocked -= 1
        if state is _QUEUED:
            self._enqueue(waiter)
        elif state is _BLOCKED:
            self.blocked += 1
        if was_waiting is not is_waiting:
            self._count(waiter, entering=is_waiting)

    def pick_victim(self, priority: int) -> Waiter | None:
        """The bounded waiter that a newcomer of ``priority`` may push out: the newest of the lowest priority."""
        lowest = min(self._by_priority, default=priority)
        if lowest >= priority:
            return None
        newest = next(reversed(self._by_priority[lowest]))
        return self._by_priority[lowest][newest]

    def wake(self, kind: "ProfileRecord") -> None:
        """Have both lines of ``kind`` looked at again."""
        for line in kind.queues:
            if line.size and line.condition is not self.ready:
                self.ready.add(line)

    def _enqueue(self, waiter: Waiter) -> None:
        self.queued += 1
        line = waiter.profile_record.queues[waiter.privileged]
        line.push(waiter)
        if line.condition is None or line.size == 1:
            self.ready.add(line)
        elif waiter.rank < line.condition_rank:
            line.condition.add(line)

    def _count(self, waiter: Waiter, *, entering: bool) -> None:
        for applies, members in ((waiter.nested, self.nested), (waiter.room_only, self.room_only)):
            if applies and entering:
                members[waiter.request] = waiter
            elif applies:
                del members[waiter.request]
        if not waiter.bounded:
            return
        peers = self._by_priority.setdefault(waiter.priority, {})
        if entering:
            self._bounded += 1
            peers[waiter.request] = waiter
        else:
            self._bounded -= 1
            del peers[waiter.request]
            if not peers:
                del self._by_priority[waiter.priority]


_QUEUED = WaiterState.QUEUED
_BLOCKED = WaiterState.BLOCKED
