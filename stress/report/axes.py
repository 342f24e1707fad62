"""Axes whose labels are round numbers at equal distances, so that a chart of any width can be labelled. Pure."""

import math
from collections.abc import Callable

import msgspec

__all__ = ["Axis", "amount_axis", "time_axis"]

_MOST_STEPS = 6
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_TOPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
_HEADROOM = 1.06
"""The marks of faults are at the top; the lines stay below them."""


class Axis(msgspec.Struct, frozen=True):
    """From 0 to ``end``, with ``labels`` at equal distances, the first one at 0 and the last one at the end."""

    end: float
    labels: tuple[str, ...]

    def share(self, value: float) -> float:
        """Where on the axis the value is, from 0 to 1; what is beyond it is at its ends."""
        return min(1.0, max(0.0, value / self.end))


def time_axis(seconds: float) -> Axis:
    """Of a run of that length: steps of whole seconds, minutes or hours."""
    usual = (step for step in _STEPS if seconds <= step * _MOST_STEPS)
    step = next(usual, math.ceil(seconds / _MOST_STEPS / _STEPS[-1]) * _STEPS[-1])
    count = max(1, math.ceil(seconds / step))
    return Axis(float(step * count), tuple(_clock(step * number) for number in range(count + 1)))


def amount_axis(highest: float, say: Callable[[float], str], *, unit: float = 1.0, least: float = 2.0) -> Axis:
    """Up to more than ``highest``, in two steps that are round in ``unit``; ``least`` units where all is small."""
    wanted = max(_HEADROOM * highest / unit, least)
    power = 10.0 ** math.floor(math.log10(wanted))
    top = unit * power * next((each for each in _TOPS if each * power >= wanted), 10.0)
    return Axis(top, ("0", say(top / 2), say(top)))


def _clock(seconds: int) -> str:
    if seconds >= 7200 and seconds % 1800 == 0:
        return f"{seconds / 3600:g} h"
    return f"{seconds // 60} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds} s"
