"""Charts over the time of a run: inline SVG as wide as there is room, round axis labels in HTML beside it. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from stress.outcome import SecondMetrics, ViolationReport
from stress.report.text import EMPTY_MARKUP, Markup, join, plural, tag, truncate

_MAX_STEPS = 6
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_TOPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
_HEADROOM = 1.06
"""Keeps the lines below the marks of faults at the top."""


class Axis(msgspec.Struct, frozen=True):
    """From 0 to ``end``, with ``labels`` at equal distances, the first one at 0 and the last one at the end."""

    end: float
    labels: tuple[str, ...]

    def share(self, value: float) -> float:
        """Position of the value on the axis, from 0 to 1, clamped."""
        return min(1.0, max(0.0, value / self.end))


def time_axis(seconds: float) -> Axis:
    """Axis of a run of that length, in steps of whole seconds, minutes or hours."""
    usual = (step for step in _STEPS if seconds <= step * _MAX_STEPS)
    step = next(usual, math.ceil(seconds / _MAX_STEPS / _STEPS[-1]) * _STEPS[-1])
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


_MAX_SLOTS = 200


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` from ``begin`` on. ``asked``, ``answered`` and ``failed``: mean per second.

    ``faults``: their sum; the others: the maximum. None = nothing to measure: no supervisor, no answer.
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


def slots_of(series: Sequence[SecondMetrics], most: int = _MAX_SLOTS) -> list[Slot]:
    """The run in at most ``most`` slots of equal length; the last one may be shorter."""
    width = max(1, math.ceil(len(series) / most))
    return [_slot(series[first : first + width]) for first in range(0, len(series), width)]


def _slot(seconds: Sequence[SecondMetrics]) -> Slot:
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


_WIDTH = 1000
_HEIGHT = 100
_BOX = f"0 0 {_WIDTH} {_HEIGHT}"


class ChartSeries(msgspec.Struct, frozen=True):
    """One line: its value in each slot, None = a gap; ``tone``: name of its colour in the style.

    ``summary``: the line in words. ``is_filled``: down to the axis.
    """

    name: str
    tone: str
    summary: str
    values: tuple[float | None, ...]
    is_filled: bool = False


class ChartContext(msgspec.Struct, frozen=True):
    """Shared by all charts of a run: slots, time axis, violations."""

    slots: Sequence[Slot]
    time: Axis
    violations: Sequence[ViolationReport]

    def x(self, t: float) -> float:
        """Position of a time."""
        return round(_WIDTH * self.time.share(t), 1)


def chart(
    title: str,
    background: ChartContext,
    amount: Axis,
    lines: Sequence[ChartSeries],
    say: Callable[[float], str],
    *,
    limit: float | None = None,
) -> Markup:
    """A figure: title, legend, lines, marks of faults and violations.

    ``say`` formats a value; ``limit`` is drawn as a line.
    """
    summary = "; ".join(f"{line.name} {line.summary}" for line in lines)
    drawing = tag(
        "svg",
        *_grid(),
        *_fault_marks(background),
        *(_draw_series(line, background, amount) for line in lines),
        *([] if limit is None else [_horizontal_line("limit", _y(amount, limit))]),
        *_violation_marks(background),
        *_tooltips(background, lines, say),
        class_="plot",
        viewBox=_BOX,
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {summary}",
    )
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), _legend(lines)),
        tag("div", _labels("y-labels", reversed(amount.labels)), drawing, class_="frame"),
        _labels("x-labels", background.time.labels),
        class_="chart",
    )


def strip(label: str, background: ChartContext, spans: Sequence[tuple[float, float]], tone: str) -> Markup:
    """A low drawing of ``(begin, seconds)`` spans; spans too close to distinguish are merged."""
    return tag(
        "svg",
        *(
            tag("rect", x=left, y=0, width=round(right - left, 1), height=_HEIGHT, class_=tone)
            for left, right in _merged(background, spans)
        ),
        class_="strip",
        viewBox=_BOX,
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _merged(background: ChartContext, spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    least = _WIDTH / 250
    merged: list[tuple[float, float]] = []
    for begin, seconds in sorted(spans):
        left = background.x(begin)
        right = min(float(_WIDTH), max(left + least, background.x(begin + seconds)))
        if merged and left - merged[-1][1] < least / 2:
            merged[-1] = (merged[-1][0], max(right, merged[-1][1]))
        else:
            merged.append((left, right))
    return merged


def _labels(place: str, labels: Iterator[str] | Sequence[str]) -> Markup:
    return tag("div", *(tag("span", label) for label in labels), class_=place, aria_hidden="true")


def _legend(lines: Sequence[ChartSeries]) -> Markup:
    keys = (tag("li", tag("i", class_=f"key {line.tone}"), f"{line.name} ", tag("b", line.summary)) for line in lines)
    return tag("ul", *keys, class_="legend")


def _y(amount: Axis, value: float) -> float:
    return round(_HEIGHT * (1 - amount.share(value)), 1)


def _horizontal_line(kind: str, y: float) -> Markup:
    return tag("line", x1=0, y1=y, x2=_WIDTH, y2=y, class_=kind)


def _grid() -> Iterator[Markup]:
    return (_horizontal_line("grid", y) for y in (0, _HEIGHT / 2, _HEIGHT))


def _fault_marks(background: ChartContext) -> Iterator[Markup]:
    for slot in background.slots:
        if slot.faults:
            left, right = background.x(slot.begin), background.x(slot.begin + slot.seconds)
            yield tag("rect", x=left, y=0, width=round(right - left, 1), height=_HEIGHT, class_="fault-time")
            yield tag("rect", x=left, y=0, width=round(right - left, 1), height=4, class_="fault-mark")


def _violation_marks(background: ChartContext) -> Iterator[Markup]:
    for violation in background.violations:
        x = background.x(violation.t)
        yield tag("line", x1=x, y1=0, x2=x, y2=_HEIGHT, class_="broken-mark")


def _draw_series(line: ChartSeries, background: ChartContext, amount: Axis) -> Markup:
    stretches = list(_segments(line, background, amount))
    parts = [tag("path", d=_area(stretch), class_=f"area {line.tone}") for stretch in stretches if line.is_filled]
    path = "".join(_path(stretch) for stretch in stretches)
    return join([*parts, tag("path", d=path, class_=f"line {line.tone}")]) if path else EMPTY_MARKUP


def _segments(line: ChartSeries, background: ChartContext, amount: Axis) -> Iterator[list[tuple[float, float]]]:
    """The points, split at gaps."""
    stretch: list[tuple[float, float]] = []
    for slot, value in zip(background.slots, line.values, strict=True):
        if value is not None:
            stretch.append((background.x(slot.begin + slot.seconds / 2), _y(amount, value)))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _path(stretch: Sequence[tuple[float, float]]) -> str:
    """A single point is a line of no length: a dot."""
    first, *others = stretch
    return f"M{first[0]:g} {first[1]:g}" + ("".join(f"L{x:g} {y:g}" for x, y in others) or "h0")


def _area(stretch: Sequence[tuple[float, float]]) -> str:
    return f"{_path(stretch)}L{stretch[-1][0]:g} {_HEIGHT}L{stretch[0][0]:g} {_HEIGHT}Z"


def _tooltips(background: ChartContext, lines: Sequence[ChartSeries], say: Callable[[float], str]) -> Iterator[Markup]:
    """The tooltip of each slot."""
    broken = sorted(background.violations, key=lambda each: each.t)
    for number, slot in enumerate(background.slots):
        left, end = background.x(slot.begin), slot.begin + slot.seconds
        texts = [f"{line.name} {say(value)}" for line in lines if (value := line.values[number]) is not None]
        texts += [plural(slot.faults, "fault")] if slot.faults else []
        texts += [f"{each.invariant}: {truncate(each.what, 100)}" for each in broken if slot.begin <= each.t < end]
        yield tag(
            "rect",
            tag("title", f"{slot.begin} s: {', '.join(texts)}"),
            x=left,
            y=0,
            width=round(background.x(end) - left, 1),
            height=_HEIGHT,
            class_="hint",
        )
