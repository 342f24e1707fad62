"""Figures in words, as short as they are read. Pure."""

__all__ = ["count", "duration", "many", "mebibytes", "moment"]

_MIB = 1024 * 1024


def count(number: float) -> str:
    """``12,345``; below 100 with one digit after the point where there is something to say: ``2.5``."""
    if number < 100 and round(number, 1) != round(number):
        return f"{number:.1f}"
    return f"{number:,.0f}"


def many(number: int, thing: str) -> str:
    """``1 fault``, ``2,400 faults``."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``0``, ``350 µs``, ``12 ms``, ``1.25 s``, ``90 s``, ``15 min``, ``2.5 h``."""
    if seconds <= 0:
        return "0"
    for most, unit, name, digits in (
        (0.001, 1e-6, "µs", 0),
        (0.9995, 1e-3, "ms", 0),
        (9.995, 1.0, "s", 2),
        (119.95, 1.0, "s", 1),
        (7170.0, 60.0, "min", 1),
    ):
        if seconds < most:
            return f"{_trimmed(seconds / unit, digits)} {name}"
    return f"{_trimmed(seconds / 3600, 1)} h"


def moment(seconds: float) -> str:
    """A time of the run to the millisecond: ``12.345 s``."""
    return f"{seconds:,.3f} s"


def mebibytes(size: float) -> str:
    """``84 MiB``."""
    return f"{_trimmed(size / _MIB, 1 if size < 10 * _MIB else 0)} MiB"


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
