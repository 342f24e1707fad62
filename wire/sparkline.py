"""Numbers over time in equal steps, and the line of blocks that shows them. Pure."""

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*%#"


class TimeSeries:
    """Sums and counts of the latest steps of ``seconds`` each; what is older falls out."""

    def __init__(self, steps: int = 60, seconds: float = 2.0) -> None:
        self._seconds = seconds
        self._sums = [0.0] * steps
        self._counts = [0] * steps
        self._last: int | None = None

    def add(self, at: float, value: float = 1.0) -> None:
        """Note a value at a time in seconds."""
        step = math.floor(at / self._seconds)
        last = self._advance(step)
        if step > last - len(self._sums):
            slot = step % len(self._sums)
            self._sums[slot] += value
            self._counts[slot] += 1

    def sums(self, now: float) -> list[float]:
        """Oldest first; the step that ``now`` is in is the last one."""
        return [self._sums[slot] for slot in self._slots(now)]

    def means(self, now: float) -> list[float | None]:
        """None where there was nothing."""
        return [self._sums[slot] / self._counts[slot] if self._counts[slot] else None for slot in self._slots(now)]

    def _slots(self, now: float) -> list[int]:
        last = self._advance(math.floor(now / self._seconds))
        return [step % len(self._sums) for step in range(last - len(self._sums) + 1, last + 1)]

    def _advance(self, step: int) -> int:
        """Clear the steps up to this one, if it is a later one; the latest step there is."""
        if self._last is None:
            self._last = step
        for each in range(max(self._last, step - len(self._sums)) + 1, step + 1):
            self._sums[each % len(self._sums)] = 0.0
            self._counts[each % len(self._sums)] = 0
        self._last = max(self._last, step)
        return self._last


def sparkline(values: Sequence[float | None], width: int, *, ascii_only: bool = False) -> str:
    """The latest ``width`` values as blocks from 0 up to the largest of them; a blank where there is none."""
    shown = values[-width:] if width > 0 else []
    blocks = _ASCII if ascii_only else _BLOCKS
    top = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else blocks[_height(value, top, len(blocks))] for value in shown)


def _height(value: float, top: float, steps: int) -> int:
    return 0 if top <= 0 else min(steps - 1, int(value / top * steps))
