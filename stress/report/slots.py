"""The seconds of a run, however long it was, as few slots of time as a chart can show. Pure."""

import math
from collections.abc import Sequence

import msgspec

from stress.outcome import Second

__all__ = ["Slot", "slots_of"]

_MOST_SLOTS = 200


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """From ``begin``, ``seconds`` long. ``asked``, ``answered`` and ``failed`` are per second, on average.

    ``faults`` are all of them; the others are the highest seen. None = there was nothing to measure: no supervisor, no
    answer.
    """

    begin: int
    seconds: int
    asked: float
    answered: float
    failed: float
    waiting: int
    running: int
    workers: int
    rss: int | None
    fds: int | None
    p50: float | None
    p99: float | None
    faults: int
    delayed: float


def slots_of(series: Sequence[Second], most: int = _MOST_SLOTS) -> list[Slot]:
    """All of the run in at most so many slots of the same length, which may be cut short at the end."""
    width = max(1, math.ceil(len(series) / most))
    return [_slot(series[first : first + width]) for first in range(0, len(series), width)]


def _slot(seconds: Sequence[Second]) -> Slot:
    length = len(seconds)
    with_answers = [each for each in seconds if each.answered]
    return Slot(
        begin=seconds[0].second,
        seconds=length,
        asked=sum(each.asked for each in seconds) / length,
        answered=sum(each.answered for each in seconds) / length,
        failed=sum(each.failed for each in seconds) / length,
        waiting=max(each.waiting for each in seconds),
        running=max(each.running for each in seconds),
        workers=max(each.workers for each in seconds),
        rss=max(each.rss for each in seconds) or None,
        fds=max(each.fds for each in seconds) or None,
        p50=max((each.p50 for each in with_answers), default=None),
        p99=max((each.p99 for each in with_answers), default=None),
        faults=sum(each.faults for each in seconds),
        delayed=max(each.delayed for each in seconds),
    )
