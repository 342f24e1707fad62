"""What every benchmark shares: a figure beside its baseline and its bar, and the statistics that figures are made by.

A benchmark is a module ``benchmarks/bench_*.py`` with a function ``run() -> list[Result]``, run in a process of its
own. It measures its baseline in the same run: a figure without one says more about the machine than about the code.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.promises import Promise


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    name: str
    value: float
    unit: str
    promise: Promise | None = None
    """The row of the table that it belongs to; None: worth knowing beside them."""
    baseline: float | None = None
    baseline_name: str = ""
    ratio: float | None = None
    """``value`` / ``baseline``."""
    bar: str = ""
    """The demand in words; empty where there is none."""
    share: float | None = None
    """How much it takes of what the bar allows, of several bars the worst: above 1 it is missed."""

    @property
    def met(self) -> bool | None:
        """None where nothing is demanded."""
        return None if self.share is None else self.share <= 1


def result(
    name: str,
    value: float,
    unit: str,
    *,
    promise: Promise | None = None,
    beside: tuple[float, str] | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
    ratio_at_most: float | None = None,
    ratio_at_least: float | None = None,
) -> Result:
    """Put a figure ``beside`` its baseline (the value, its unit and name) and judge it by the bars that are given.

    Raises:
        ValueError: something is to be compared with a baseline or to reach a number, and is nothing at all.
    """
    baseline, baseline_name = beside or (None, "")
    ratio = value / baseline if baseline else None
    demands = [
        (at_most, value, "<=", f" {unit}"),
        (at_least, value, ">=", f" {unit}"),
        (ratio_at_most, ratio, "<=", " x"),
        (ratio_at_least, ratio, ">=", " x"),
    ]
    asked = [(limit, measured, sign, suffix) for limit, measured, sign, suffix in demands if limit is not None]
    return Result(
        name=name,
        value=value,
        unit=unit,
        promise=promise,
        baseline=baseline,
        baseline_name=baseline_name,
        ratio=ratio,
        bar=", ".join(f"{sign} {limit:,.10g}{suffix}" for limit, _, sign, suffix in asked),
        share=max((_share(name, limit, measured, sign) for limit, measured, sign, _ in asked), default=None),
    )


def _share(name: str, limit: float, measured: float | None, sign: str) -> float:
    if measured is None:
        raise ValueError(f"{name}: a bar for the ratio needs a baseline")
    if sign == "<=":
        return measured / limit
    if measured <= 0:
        raise ValueError(f"{name}: {measured} cannot be held against a bar that is to be reached")
    return limit / measured


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which ``share`` (0 ... 1) of them lie."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(samples: Sequence[float]) -> float:
    """The middle one: what a usual call takes."""
    return statistics.median(samples)


def best_of(times: int, measure: Callable[[], float]) -> float:
    """The smallest of some measurements in seconds: what the code takes when nothing else disturbs it."""
    return min(measure() for _ in range(times))
