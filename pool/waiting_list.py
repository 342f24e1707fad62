"""The waiting list: all waiters by state and priority, and the conditions that whole lines of them wait for.

Ageing is linear, so the order of two waiters never changes: ``enqueued_at - priority * age_step``, first come first
served where that is equal. Each line is a heap with lazy deletion; a line that cannot be advanced rests at the
condition that keeps it (no process free, no token, back-off ...), so that looking for the best
waiter never scans them all.
"""

from typing import TypeVar

from pool.queues import ConditionQueue, ProfileQueue
from pool.records import ProfileRecord, Waiter
from pool.transitions import WAITER_TRANSITIONS, WaiterState
from wire.states import transition

_QUEUED = WaiterState.QUEUED
_BLOCKED = WaiterState.BLOCKED
GroupT = TypeVar("GroupT", ProfileRecord, ProfileQueue)


class WaitingList:
    """All waiters that are queued or blocked, with the moves between their states and the bound on direct acquires."""

    __slots__ = (
        *("_bounded", "_by_priority", "blocked", "nested", "pool_full", "queued", "quota", "ready", "room_only"),
        *("tokens",),
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
        self.nested: dict[ProfileRecord | None, dict[str, Waiter]] = {}
        """By profile those that are queued, under None those that are blocked."""
        self.room_only: dict[ProfileQueue | None, dict[str, Waiter]] = {}
        """By line, and under None likewise: a worker is being started for them, or they are refused."""
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
        if waiter.nested:
            _regroup(self.nested, waiter.profile_record, waiter, old)
        if waiter.room_only:
            _regroup(self.room_only, waiter.profile_record.queues[waiter.privileged], waiter, old)
        if waiter.bounded and was_waiting is not is_waiting:
            self._count(waiter, entering=is_waiting)

    def pick_victim(self, priority: int) -> Waiter | None:
        """The bounded waiter that a newcomer of ``priority`` may push out: the newest of the lowest priority."""
        lowest = min(self._by_priority, default=priority)
        if lowest >= priority:
            return None
        newest = next(reversed(self._by_priority[lowest]))
        return self._by_priority[lowest][newest]

    def wake(self, kind: ProfileRecord) -> None:
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
        peers = self._by_priority.setdefault(waiter.priority, {})
        if entering:
            self._bounded += 1
            peers[waiter.request] = waiter
        else:
            self._bounded -= 1
            del peers[waiter.request]
            if not peers:
                del self._by_priority[waiter.priority]


def _regroup(groups: dict[GroupT | None, dict[str, Waiter]], own: GroupT, waiter: Waiter, old: WaiterState) -> None:
    """Move a waiter that was ``old`` to where its state now has it."""
    if old is _QUEUED or old is _BLOCKED:
        left = own if old is _QUEUED else None
        del groups[left][waiter.request]
        if not groups[left]:
            del groups[left]
    if waiter.state is _QUEUED or waiter.state is _BLOCKED:
        groups.setdefault(own if waiter.state is _QUEUED else None, {})[waiter.request] = waiter
