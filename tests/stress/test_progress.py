"""What is shown while a run goes on."""

import io

import pytest
from rich.console import Console

from stress.facts import LifeBegan, LifeEnded
from stress.plan import make_plan
from stress.progress import Progress, sparkline
from stress.recorder import Recorder
from tests.stress.story import RULES
from tests.stress.test_command import WISH


def test_bars_show_the_latest_values_and_the_highest_one_full() -> None:
    assert sparkline([9.0, 0.0, 4.0, 8.0], width=3) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_broken_promise_is_told_at_once_and_once(*, is_terminal: bool) -> None:
    shown = io.StringIO()
    progress = Progress(Console(file=shown, force_terminal=is_terminal, width=100))
    recorder = Recorder(make_plan(WISH), RULES)
    progress.follow(recorder)
    with progress.shown():
        recorder.tell(LifeBegan(t=1.0, life=1, supervisor=7))
        assert "I4 broken" not in shown.getvalue()
        recorder.tell(LifeEnded(t=2.0, life=1, code=3, signals=()))
        assert "I4 broken: the supervisor ended by itself, with code 3" in shown.getvalue()
        recorder.tell(LifeBegan(t=3.0, life=2, supervisor=8))
    assert shown.getvalue().count("I4 broken") == 1
