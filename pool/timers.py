"""Deadlines on the machine's own clock: a heap with lazy deletion, so that setting and cancelling cost O(log n)."""

import heapq
import math
from collections.abc import Callable
from typing import Any

__all__ = ["Timer", "Timers"]

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
        fired = False
        while (due := self.next_at()) is not None and due <= now:
            timer = heapq.heappop(self._heap)[2]
            call, subject = timer.call, timer.subject
            timer.call = timer.subject = None
            if call is not None:
                call(subject)
                fired = True
        return fired
