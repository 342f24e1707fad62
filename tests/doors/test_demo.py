"""The demo keeps what it promises, and admits when it cannot."""

import io

import pytest
from rich.console import Console

from commands import demo


def run() -> tuple[int, str]:
    out = io.StringIO()
    return demo.run_demo(Console(file=out, width=120)), out.getvalue()


@pytest.mark.process
def test_the_demo_works_from_start_to_clean_end() -> None:
    code, shown = run()
    assert code == 0, shown
    assert "the turn failed: worker" in shown
    assert "my number is 1815" in shown
    assert "All of it worked" in shown


@pytest.mark.process
def test_a_demo_whose_supervisor_does_not_start_says_why_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_SETTINGS", "[pool]\nmax = 0\n")
    code, shown = run()
    assert code == 1
    assert "The demo failed: the supervisor did not start" in shown
    assert "pool.max: must be 1 or more" in shown
