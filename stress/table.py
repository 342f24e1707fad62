"""The result of a run as tables for a terminal."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stress.facts import Fact
from stress.outcome import InvariantVerdict, LatencyQuantiles, StressResult, ViolationReport

_MIB = 1024 * 1024
_SHOWN_FACTS = 20


def show_result(result: StressResult, console: Console) -> None:
    """Print figures, verdicts, the facts of each broken promise, and the command that repeats the run."""
    console.print(Group(*_parts(result)))


def _parts(result: StressResult) -> Iterator[RenderableType]:
    yield Text()
    yield _metrics_table(result)
    yield Text()
    yield _verdicts(result.verdicts)
    for violation in _first_of_each(result.violations):
        yield from _violation_lines(violation)
    yield Text()
    if result.all_kept and result.is_empty:
        yield Text("No request was completed, so no promise was proven. To repeat it:", "bold red")
        yield Text(f"  {result.plan.command}")
        return
    if result.all_kept:
        yield Text(
            f"{result.kept_sentence}, over {result.requests:,} requests and "
            f"{sum(each.faults for each in result.series) + result.faulty:,} faults.",
            "bold green",
        )
        return
    broken = sum(verdict.broken for verdict in result.verdicts)
    yield Text(f"Promises broken: {broken:,}. To repeat it:", "bold red")
    yield Text(f"  {result.plan.command}")
    if result.log:
        yield Text(f"The supervisor's log: {result.log}", "dim")


def _metrics_table(result: StressResult) -> Table:
    plan = result.plan
    table = Table.grid(padding=(0, 3))
    table.add_row(
        "load", f"{plan.load}, {plan.sessions:,} sessions, {plan.workers} workers, {len(plan.roles)} profiles"
    )
    table.add_row("seed", str(plan.seed))
    lives = f", {result.lives} supervisors" if result.lives > 1 else ""
    table.add_row("time", f"{result.seconds:.1f} s{lives}")
    fates = (f"{count:,} {fate}" for fate, count in sorted(result.fates.items(), key=lambda each: -each[1]))
    table.add_row("requests", f"{result.requests:,}: {', '.join(fates)}")
    harms = (f"{result.harms.get(harm, 0):,} {harm}" for harm in ("lost", "duplicated", "foreign"))
    table.add_row("", ", ".join(harms))
    table.add_row("faults", ", ".join(_faults(result)) or "none")
    table.add_row("beyond the turn", _latencies(result.latencies))
    if result.calm_latencies.count:
        table.add_row("before any fault", _latencies(result.calm_latencies))
    table.add_row("supervisor", f"{max((each.rss for each in result.series), default=0) // _MIB} MiB at most")
    return table


def _faults(result: StressResult) -> Iterator[str]:
    for name, count in sorted(Counter(f"{fault.fault} {fault.action}" for fault in result.faults).items()):
        yield f"{count:,} {name}"
    if result.faulty:
        yield f"{result.faulty:,} requests to faulty workers"


def _latencies(latencies: LatencyQuantiles) -> str:
    return f"p50 {1000 * latencies.p50:,.0f} ms, p99 {1000 * latencies.p99:,.0f} ms, at most {latencies.max:,.2f} s"


def _verdicts(verdicts: tuple[InvariantVerdict, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "promise", "checked", "broken"):
        table.add_column(name, justify="right" if name in ("checked", "broken") else "left")
    for verdict in verdicts:
        mark, style = ("✗", "bold red") if verdict.broken else ("✓", "green") if verdict.checked else ("-", "dim")
        title = f"{verdict.title} ({verdict.note})" if verdict.note else verdict.title
        row = (
            f"{mark} {verdict.invariant}",
            title,
            f"{verdict.checked:,}",
            f"{verdict.broken:,}" if verdict.broken else "",
        )
        table.add_row(*(Text(cell, style if number == 0 else "") for number, cell in enumerate(row)))
    return table


def _first_of_each(violations: tuple[ViolationReport, ...]) -> list[ViolationReport]:
    first: dict[str, ViolationReport] = {}
    for violation in violations:
        first.setdefault(violation.invariant, violation)
    return list(first.values())


def _violation_lines(violation: ViolationReport) -> Iterator[Text]:
    yield Text()
    yield Text(f"{violation.invariant} at {violation.t:.3f} s: {violation.what}", "bold red")
    history = violation.shortest or violation.history
    left_out = len(history) - _SHOWN_FACTS
    if left_out > 0:
        yield Text(f"  ({left_out} earlier facts, see --json)", "dim")
    for fact in history[-_SHOWN_FACTS:]:
        yield Text(f"  {_fact_line(fact)}")


def _fact_line(fact: Fact) -> str:
    fields = {name: getattr(fact, name) for name in fact.__struct_fields__ if name != "t"}
    said = " ".join(f"{name}={value!r}" for name, value in fields.items() if value not in ("", (), None))
    return f"{fact.t:9.3f}  {type(fact).__name__.lower():12} {said}"[:200]
