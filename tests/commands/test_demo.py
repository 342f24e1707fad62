"""The demo keeps what it promises, and admits when it cannot; the supervisor as its child process."""

import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from app.child import SupervisorProcess
from commands import demo
from errors import PoolError

pytestmark = pytest.mark.process


def test_the_demo_works_from_start_to_clean_end() -> None:
    out = io.StringIO()
    assert demo.run_demo(Console(file=out, width=120)) == 0, out.getvalue()
    for words in ("the turn failed: worker", "my number is 1815", "All of it worked"):
        assert words in out.getvalue()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("_MAX_WORKERS", 1, "2 workers are alive, more than 1"),
        ("_PIECES", "PIECES=0", "not every session got its answer"),
    ],
)
def test_a_demo_of_which_something_does_not_hold_fails(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, words: str
) -> None:
    monkeypatch.setattr(demo, name, value)
    out = io.StringIO()
    assert demo.run_demo(Console(file=out, width=120)) == 1
    assert f"The demo failed: {words}" in out.getvalue()


def test_a_demo_whose_supervisor_does_not_start_says_why_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_SETTINGS", "[pool]\nmax = 0\n")
    out = io.StringIO()
    assert demo.run_demo(Console(file=out, width=120)) == 1
    assert "The demo failed: the supervisor did not start" in out.getvalue()
    assert "pool.max: must be 1 or more" in out.getvalue()


def test_a_start_that_fails_beside_the_socket_of_one_that_was_killed_is_reported(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(short_dir / "s"))
    refused = SupervisorProcess(short_dir, "[pool]\nmax = 0\n")
    with pytest.raises(PoolError, match="did not start"), refused:
        pass
    assert "pool.max: must be 1 or more" in refused.log_tail()
