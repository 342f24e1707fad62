"""Deadline heaps with lazy deletion: callback timers and keyed due times. Pure."""

import heapq
import math
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_COMPACT_FROM = 64


class Timer:
    """One deadline; ``call(subject)`` happens once at or after ``when`` unless it was cancelled."""

    __slots__ = ("call", "subject", "when")

    def __init__(self, when: float, call: Callable[[Any], None], subject: object) -> None:
        self.when = when
        self.call: Callable[[Any], None] | None = call
        self.subject: object = subject


class Timers:
    """All deadlines of the machine. Cancelled entries leave when they come up, or when they are the majority."""

    __slots__ = ("_cancelled", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, when: float, call: Callable[[Any], None], subject: object) -> Timer:
        """Arm a timer; an infinite ``when`` never fires."""
        timer = Timer(when, call, subject)
        if when < math.inf:
            self._sequence += 1
            heapq.heappush(self._heap, (when, self._sequence, timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Disarm a timer; None, fired and cancelled ones are fine."""
        if timer is None or timer.call is None:
            return
        timer.call = timer.subject = None
        if timer.when == math.inf:
            return
        self._cancelled += 1
        if self._cancelled > _COMPACT_FROM and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_at(self) -> float | None:
        """When the earliest armed timer is due; None without any."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def fire(self, now: float) -> bool:
        """Call everything that is due at ``now``, in order; says whether there was anything."""
        if not self._heap or self._heap[0][0] > now:
            return False
        fired = False
        while (due := self.next_at()) is not None and due <= now:
            timer = heapq.heappop(self._heap)[2]
            call, subject = timer.call, timer.subject
            timer.call = timer.subject = None
            if call is not None:
                call(subject)
                fired = True
        return fired


KeyT = TypeVar("KeyT", bound=Hashable)


class KeyedTimers(Generic[KeyT]):
    """At most one due time for each key. Setting, moving and discarding cost O(log n), looking costs O(1) amortised.

    Due times are floats on whatever clock the caller keeps. Entries that were moved or discarded stay in the heap until
    they come up, or until they are its majority: the heap has at most twice as many entries as there are keys, plus 64.
    """

    __slots__ = ("_due", "_heap", "_sequence")

    def __init__(self) -> None:
        self._due: dict[KeyT, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._due

    def set(self, key: KeyT, due: float) -> None:
        """Have the key due at that time, and at no other. Keys due at the same time come up in the order of setting."""
        self._sequence += 1
        self._due[key] = (due, self._sequence)
        heapq.heappush(self._heap, (due, self._sequence, key))
        if len(self._heap) > 2 * len(self._due) + _COMPACT_FROM:
            self._compact()

    def discard(self, key: KeyT) -> None:
        """Have the key due never; one that is not due is fine."""
        if self._due.pop(key, None) is not None and len(self._heap) > 2 * len(self._due) + _COMPACT_FROM:
            self._compact()

    def due_of(self, key: KeyT) -> float | None:
        """When the key is due; None = never."""
        entry = self._due.get(key)
        return None if entry is None else entry[0]

    def next_due(self) -> float | None:
        """The earliest due time of all; None when nothing is due ever."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float, limit: int | None = None) -> list[KeyT]:
        """Take out what is due at ``now`` or was before, the earliest first; at most ``limit`` of them."""
        keys: list[KeyT] = []
        while limit is None or len(keys) < limit:
            due = self.next_due()
            if due is None or due > now:
                break
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
        return keys

    def _compact(self) -> None:
        self._heap = [(*due, key) for key, due in self._due.items()]
        heapq.heapify(self._heap)
