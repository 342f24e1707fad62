"""What a terminal shows of a run: progress while it goes on, and at the end no more than was seen."""

import io

import msgspec
import pytest
from rich.console import Console

from stress.facts import FaultInjected, MachineDelay, SupervisorEnded, SupervisorStarted
from stress.metrics import RunMetrics
from stress.outcome import StressResult
from stress.plan import make_plan
from stress.recorder import RunRecorder
from stress.terminal import LiveProgress, PipeSafeConsole, show_result
from tests.stress.report.made_up import a_result
from tests.stress.story import RULES, Story
from tests.stress.test_command import WISH, closed_pipe


@pytest.mark.parametrize(("encoding", "bars"), [("utf-8", "█▁"), ("ascii", "#_")])
def test_figures_are_shown_as_bars_that_the_terminal_has_letters_for(
    monkeypatch: pytest.MonkeyPatch, encoding: str, bars: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding=encoding)
    progress = LiveProgress(PipeSafeConsole(file=terminal, force_terminal=True, width=100))
    recorder = RunRecorder(make_plan(WISH), RULES)
    progress.follow(recorder)
    with progress.shown():
        for at in (0.5, 2.5):
            recorder.record(FaultInjected(t=at, fault="F1", action="kill"))
        terminal.flush()
        assert bars in written.getvalue().decode(encoding)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_broken_promise_is_told_once_and_no_later_than_the_machine_s_lateness_is_known(*, is_terminal: bool) -> None:
    shown = io.StringIO()
    progress = LiveProgress(PipeSafeConsole(file=shown, force_terminal=is_terminal, width=100))
    recorder = RunRecorder(make_plan(WISH), RULES)
    progress.follow(recorder)
    with progress.shown():
        recorder.record(SupervisorStarted(t=1.0, life=1, supervisor=7))
        recorder.record(SupervisorEnded(t=2.0, life=1, code=3, signals=()))
        assert "I4 broken" not in shown.getvalue()
        recorder.record(MachineDelay(t=7.0, seconds=0.0))
        assert "I4 broken: the supervisor ended by itself, with code 3" in shown.getvalue()
        recorder.record(SupervisorStarted(t=8.0, life=2, supervisor=8))
    assert shown.getvalue().count("I4 broken") == 1


def test_a_pipe_that_breaks_is_shown_nothing_from_then_on() -> None:
    with closed_pipe() as broken:
        progress = LiveProgress(PipeSafeConsole(file=broken, force_terminal=True, width=100))
        recorder = RunRecorder(make_plan(WISH), RULES)
        progress.follow(recorder)
        with progress.shown():
            for at in (0.5, 2.5):
                recorder.record(FaultInjected(t=at, fault="F1", action="kill"))
        progress.print_status()


# --- the result -------------------------------------------------------------------------------------------------------


def table_of(result: StressResult) -> str:
    file = io.StringIO()
    show_result(result, Console(file=file, width=160))
    return file.getvalue()


def test_requests_to_workers_that_misbehave_are_counted_as_the_faults_that_they_are() -> None:
    story, meter = Story(), RunMetrics(0.0, 0.0)
    story.ask(1)
    story.ask(2, faulty=True)
    for fact in story.facts:
        meter.observe(fact)
    assert meter.faulty == 1
    assert "3 requests to faulty workers" in table_of(msgspec.structs.replace(a_result(), faults=(), faulty=3))
    quiet = msgspec.structs.replace(a_result(), faults=(), series=())
    assert "and 0 faults" in " ".join(table_of(quiet).split())
    assert "and 3 faults" in " ".join(table_of(msgspec.structs.replace(quiet, faulty=3)).split())


@pytest.mark.parametrize(("checked", "words"), [(5, "Every promise kept"), (0, "Every promise that was checked was")])
def test_a_promise_that_was_never_looked_at_is_not_said_to_be_kept(checked: int, words: str) -> None:
    result = a_result()
    first, *rest = (msgspec.structs.replace(verdict, checked=5) for verdict in result.verdicts)
    verdicts = (msgspec.structs.replace(first, checked=checked), *rest)
    assert words in table_of(msgspec.structs.replace(result, verdicts=verdicts))


def test_of_a_run_in_which_no_request_was_completed_nothing_is_said() -> None:
    result = msgspec.structs.replace(a_result(), fates={"error: request_timeout": 3})
    assert result.all_kept
    assert result.is_empty
    assert "Every promise" not in table_of(result)
    assert "No request was completed, so no promise was proven" in table_of(result)
    assert result.plan.command in " ".join(table_of(result).split())
