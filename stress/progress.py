"""Progress of a run: a live view on a terminal, elsewhere a line now and then.

A broken promise is shown at once, so that a run that has gone wrong can be ended.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stress.outcome import SecondMetrics, ViolationReport
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
