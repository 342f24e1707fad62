"""What a terminal shows of a run: its progress, and its result as tables.

Progress is a live view on a terminal, elsewhere a line now and then. A broken promise is shown at once, so that a run
that has gone wrong can be ended.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stress.facts import Fact
from stress.outcome import InvariantVerdict, LatencyQuantiles, SecondMetrics, StressResult, ViolationReport
from stress.recorder import RunRecorder
from wire.sparkline import sparkline

_REDRAWS_PER_SECOND = 2
_LINE_SECONDS = 10.0
_WIDTH = 60
_MIB = 1024 * 1024


class PipeSafeConsole(Console):
    """Shows nothing more once its file cannot be written; the run goes on."""

    def on_broken_pipe(self) -> None:
        """Override rich, which would end the process."""
        self._mute()

    @contextmanager
    def ignoring_errors(self) -> Iterator[None]:
        """Go quiet if a write in the block fails."""
        try:
            yield
        except OSError:
            self._mute()

    def _mute(self) -> None:
        self.quiet = True
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as null:  # buffered output would fail at exit
            os.dup2(null.fileno(), self.file.fileno())


class LiveProgress:
    """Shows a run on a console."""

    def __init__(self, console: PipeSafeConsole) -> None:
        self._console = console
        self._recorder: RunRecorder | None = None
        self._live: Live | None = None
        self._shown_at = 0.0
        self._printed = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show while the block lasts."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def follow(self, recorder: RunRecorder) -> None:
        """Show this run from now on."""
        self._recorder = recorder
        recorder.listeners.append(lambda _fact: self._on_fact())

    def print_status(self) -> None:
        """Print a line about a run that is ended early; nothing in its first second."""
        if self._recorder is not None and self._recorder.metrics.series:
            self._recorder.checker.finish()
            with self._console.ignoring_errors():
                self._print_violations(self._recorder.checker.violations)
                self._console.print(_status_line(self._recorder), soft_wrap=True)

    def _on_fact(self) -> None:
        with self._console.ignoring_errors():
            self._refresh()

    def _refresh(self) -> None:
        recorder, now = self._recorder, time.monotonic()
        if recorder is not None:
            self._print_violations(recorder.checker.violations)
        every = _LINE_SECONDS if self._live is None else 1 / _REDRAWS_PER_SECOND
        if recorder is None or not recorder.metrics.series or now - self._shown_at < every:
            return
        self._shown_at = now
        if self._live is None:
            self._console.print(_status_line(recorder), soft_wrap=True)
        else:
            self._live.update(_live_view(recorder, ascii_only=self._console.options.ascii_only), refresh=True)

    def _print_violations(self, violations: Sequence[ViolationReport]) -> None:
        for violation in violations[self._printed :]:
            said = f"{violation.t:5.0f} s  {violation.invariant} broken: {violation.what}"
            self._console.print(Text(said, "red"), soft_wrap=True)
        self._printed = len(violations)


def _status_line(recorder: RunRecorder) -> Text:
    second, fates = recorder.metrics.series[-1], recorder.metrics.fates
    broken = recorder.checker.broken.total()
    return Text(
        f"{second.second:5} s  {fates['completed']:,} answered, {fates.total() - fates['completed']:,} failed, "
        f"{second.waiting:,} wait, {second.running} run on {second.workers} workers, {second.rss // _MIB} MiB, "
        f"{len(recorder.metrics.faults)} faults, {broken} promises broken"
    )


def _live_view(recorder: RunRecorder, *, ascii_only: bool) -> Group:
    plan, series = recorder.plan, recorder.metrics.series
    table = Table.grid(padding=(0, 2))
    for name, values, figure in _rows(series[-_WIDTH:], len(recorder.metrics.faults)):
        table.add_row(Text(name, "dim"), Text(sparkline(values, _WIDTH, ascii_only=ascii_only), "cyan"), Text(figure))
    broken = recorder.checker.broken
    verdict = Text("every promise kept so far", "green")
    if broken:
        verdict = Text(
            "broken: " + ", ".join(f"{name} ({count})" for name, count in sorted(broken.items())), "bold red"
        )
    faults = f" + {','.join(plan.faults)}" if plan.faults else ""
    return Group(
        Text(f"{plan.load}{faults}  seed {plan.seed}  {plan.sessions:,} sessions, {plan.workers} workers", "bold"),
        ProgressBar(total=max(plan.seconds, 1.0), completed=min(recorder.clock(), plan.seconds), width=_WIDTH + 20),
        table,
        verdict,
    )


def _rows(series: Sequence[SecondMetrics], faults: int) -> Iterator[tuple[str, list[float], str]]:
    last = series[-1]
    yield "answered", [each.answered for each in series], f"{last.answered}/s"
    yield "failed", [each.failed for each in series], f"{last.failed}/s"
    yield "waiting", [each.waiting for each in series], f"{last.waiting:,}"
    yield "workers", [each.workers for each in series], f"{last.workers}, {last.running} running"
    yield "p99", [each.p99 for each in series], f"{1000 * last.p99:.0f} ms beyond the turn"
    yield "memory", [each.rss for each in series], f"{last.rss // _MIB} MiB, {last.fds} files"
    yield "faults", [each.faults for each in series], f"{faults:,}"


# --- the result -------------------------------------------------------------------------------------------------------

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
