"""The ``[store]`` settings, and which events have expired by a clock that may jump. Pure, the clocks are passed in."""

from collections.abc import Callable
from typing import Literal

import msgspec

from wire.units import AtLeast64KiB, ByteCount, PositiveInt, PositiveSeconds, Seconds


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept, and how much may wait for the disk."""

    events: PositiveInt = 1_000_000
    """Number of events kept, the latest ones; at least 1."""
    events_age: Seconds = Seconds(30 * 86400)
    """Older events are deleted; 0 = whatever their age."""
    backlog: AtLeast64KiB = ByteCount(64 * 1024 * 1024)
    """Bytes that may wait to be written before workers are made to wait; while the disk refuses, the oldest events
    above it are given up."""
    stall: PositiveSeconds = Seconds(5)
    """A disk that takes longer than this over one write counts as one that refuses it."""
    retry: PositiveSeconds = Seconds(10)
    """The longest pause between attempts to write to a disk that refuses; the first one is 0.1 s."""
    synchronous: Literal["normal", "full"] = "normal"
    """``full``: each commit waits for the disk itself, so that a power cut loses nothing that was acknowledged; costs
    milliseconds a step. ``normal``: a power cut may lose the last seconds, a crash of the supervisor nothing."""
    close_timeout: PositiveSeconds = Seconds(10)
    """How long the last write may take when the supervisor stops."""


_MAX_SPEED = 10.0


class RetentionClock:
    """Wall time that is believed only as fast as it can be true.

    A clock set forward by years would make everything too old at once. So this one follows the wall clock forward at
    most ten times as fast as time passes, hence no event is deleted before a tenth of its age has really gone by; it
    follows it backward at once, which deletes nothing.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float], latest: float | None) -> None:
        """``latest``: when the last event was written, so that a jump between two lives is noticed too."""
        self._wall = wall
        self._monotonic = monotonic
        self._checked = monotonic()
        self._now = wall() if latest is None else min(wall(), latest)

    def now(self) -> float:
        """Unix time in seconds, never ahead of the wall clock."""
        checked = self._monotonic()
        self._now = min(self._wall(), self._now + _MAX_SPEED * (checked - self._checked))
        self._checked = checked
        return self._now


def expired_up_to(first: int, last: int, cutoff: float, probe: Callable[[int], tuple[int, float]]) -> int:
    """The seq up to which all events are from before ``cutoff``; 0 = none. Some 20 probes instead of an index.

    ``probe(seq)`` gives seq and time of the first event at or after ``seq``, where ``first <= seq <= last`` are events.
    Events are in the order of their seq, not of their times: one whose clock was ahead counts as old as a later one.
    """
    found = 0
    while first <= last:
        middle = (first + last) // 2
        seq, ts = probe(middle)
        if ts < cutoff:
            found = seq
            first = seq + 1
        else:
            last = middle - 1
    return found
