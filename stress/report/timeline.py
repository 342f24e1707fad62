"""The run over time: charts, faults by kind, and the figures behind the charts. Pure."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from stress.facts import FaultInjected
from stress.outcome import StressResult
from stress.report.charts import ChartContext, ChartSeries, Slot, amount_axis, chart, slots_of, strip, time_axis
from stress.report.text import EMPTY_MARKUP, Markup, count, duration, mebibytes, tag, truncate

_MAX_KINDS = 24
_MIB = 1024.0 * 1024.0


def timeline(result: StressResult) -> Markup:
    """The section; a sentence if no second of the run was counted."""
    slots = slots_of(result.series)
    if not slots:
        return tag("section", tag("h2", "Over time"), tag("p", "No second of this run was counted."))
    end = max(len(result.series), result.seconds if result.violations else 0.0)
    background = ChartContext(slots, time_axis(end), result.violations)
    marks = tag("li", tag("i", class_="key fault"), "a fault was injected")
    broken = tag("li", tag("i", class_="key broken-key"), "a promise was broken") if result.violations else EMPTY_MARKUP
    return tag(
        "section",
        tag("h2", "Over time"),
        tag("ul", marks, broken, class_="legend marks"),
        tag("div", *_charts(background, result.plan.workers), class_="charts"),
        _faults(result, background),
        _table(slots),
    )


def _charts(background: ChartContext, most_workers: int) -> Iterator[Markup]:
    slots = background.slots
    requests = [
        _line("answered", "answered", slots, "answered", _per_second, is_filled=True),
        _line("asked", "asked", slots, "asked", _per_second),
        _line("failed", "failed", slots, "failed", _per_second),
    ]
    yield chart("Requests a second", background, amount_axis(_highest(requests), count), requests, _per_second)
    waiting = [
        _line("waiting", "waiting", slots, "waiting", count, is_filled=True),
        _line("running", "running", slots, "running", count),
    ]
    yield chart("Requests waiting and running", background, amount_axis(_highest(waiting), count), waiting, count)
    workers = [_line("alive", "workers", slots, "workers", count, is_filled=True)]
    axis = amount_axis(max(_highest(workers), most_workers), count)
    yield chart(f"Workers, limit {most_workers}", background, axis, workers, count, limit=most_workers)
    memory = [_line("resident", "memory", slots, "rss", mebibytes, is_filled=True)]
    yield chart(
        "The supervisor's memory", background, amount_axis(_highest(memory), mebibytes, unit=_MIB), memory, mebibytes
    )
    times = [
        _line("p99", "p99", slots, "p99", duration),
        _line("p50", "p50", slots, "p50", duration),
    ]
    axis = amount_axis(_highest(times), duration, unit=0.001)
    yield chart("Answer time beyond the turn", background, axis, times, duration)
    lateness = [_line("late", "late", slots, "delayed", duration, is_filled=True)]
    axis = amount_axis(_highest(lateness), duration, unit=0.001)
    yield chart("Delay of this machine", background, axis, lateness, duration)


def _line(
    name: str, tone: str, slots: Sequence[Slot], field: str, say: Callable[[float], str], *, is_filled: bool = False
) -> ChartSeries:
    values = tuple(map(attrgetter(field), slots))
    highest = max((value for value in values if value is not None), default=None)
    summary = "nothing" if highest is None else f"at most {say(highest)}"
    return ChartSeries(name, tone, summary, values, is_filled)


def _highest(lines: Sequence[ChartSeries]) -> float:
    return max((value for line in lines for value in line.values if value is not None), default=0.0)


def _per_second(value: float) -> str:
    return f"{count(value)}/s"


# --- faults -----------------------------------------------------------------------------------------------------------


def _faults(result: StressResult, background: ChartContext) -> Markup:
    kinds: dict[str, list[FaultInjected]] = {}
    for fault in result.faults:
        kinds.setdefault(f"{fault.fault} {fault.action}", []).append(fault)
    if not kinds:
        return EMPTY_MARKUP
    ordered = sorted(kinds.items(), key=lambda each: (-len(each[1]), each[0]))
    lanes = [_fault_row(name, faults, background) for name, faults in sorted(ordered[:_MAX_KINDS])]
    others = [fault for _, faults in ordered[_MAX_KINDS:] for fault in faults]
    if others:
        lanes.append(_fault_row(f"{len(ordered) - _MAX_KINDS} other kinds", others, background))
    every = sum(each.faults for each in result.series)
    kept = f", the first {count(len(result.faults))}" if every > len(result.faults) else ""
    return tag("section", tag("h3", f"Faults by kind{kept}"), tag("div", *lanes, class_="lanes"), class_="faults")


def _fault_row(name: str, faults: Sequence[FaultInjected], background: ChartContext) -> Markup:
    drawing = strip(
        f"{truncate(name, 80)}: {count(len(faults))}",
        background,
        [(each.t, each.seconds) for each in faults],
        "fault-bar",
    )
    return tag("div", tag("span", truncate(name, 80)), drawing, tag("b", count(len(faults))), class_="lane")


# --- the figures ------------------------------------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("asked/s", "asked", count),
    ("answered/s", "answered", count),
    ("failed/s", "failed", count),
    ("waiting", "waiting", count),
    ("running", "running", count),
    ("workers", "workers", count),
    ("memory", "rss", mebibytes),
    ("files", "fds", count),
    ("p50", "p50", duration),
    ("p99", "p99", duration),
    ("faults", "faults", count),
    ("late", "delayed", duration),
)


def _table(slots: Sequence[Slot]) -> Markup:
    head = tag("tr", *(tag("th", name, scope="col") for name in ("from", *(name for name, _, _ in _COLUMNS))))
    rows = (tag("tr", tag("th", f"{slot.begin} s", scope="row"), *_cells(slot)) for slot in slots)
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="seconds")
    every = "second" if slots[0].seconds == 1 else f"{slots[0].seconds} s"
    frame = tag("div", table, class_="scroll tall", tabindex=0, role="group", aria_label="Figures over time")
    return tag("details", tag("summary", f"The figures of each {every}"), frame)


def _cells(slot: Slot) -> Iterator[Markup]:
    for _, field, say in _COLUMNS:
        value: float | None = getattr(slot, field)
        yield tag("td", "-" if value is None else say(value), class_="number")
