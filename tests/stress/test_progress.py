"""What is shown while a run goes on."""

import io

import pytest

from stress.facts import FaultInjected, MachineDelay, SupervisorEnded, SupervisorStarted
from stress.plan import make_plan
from stress.recorder import RunRecorder
from stress.terminal import LiveProgress, PipeSafeConsole
from tests.stress.story import RULES
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
