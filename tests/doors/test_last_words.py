"""Who is late at the end and who does not read: to the one nothing is lost, and nobody waits for the other."""

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, TextIO

import pytest

from app.console import ConsoleLog, Printer

Open = Callable[[TextIO], Any]
WRITERS = pytest.mark.parametrize("opened", [Printer, lambda out: ConsoleLog(live=False, out=out)], ids=["out", "log"])


@WRITERS
def test_a_thread_that_gets_its_turn_late_writes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr("app.console._POLL_SECONDS", 0.001)
    asked, turn, looks = Event(), Event(), itertools.count(1)
    with (tmp_path / "out").open("w") as out, opened(out) as writer:
        writer.write("first")
        get, join = writer._queue.get, writer._thread.join

        def get_late() -> Any:
            asked.set()
            turn.wait()
            return get()

        def look(timeout: float) -> None:
            if next(looks) < 100:
                join(timeout)
            else:
                turn.set()
                join()

        monkeypatch.setattr(writer._queue, "get", get_late)
        monkeypatch.setattr(writer._thread, "join", look)
        for number in range(50):
            writer.write(f"line {number}")
        asked.wait()
    assert (tmp_path / "out").read_text().splitlines() == ["first", *(f"line {number}" for number in range(50))]


@WRITERS
def test_a_reader_that_does_not_read_is_not_waited_for(opened: Open) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        with opened(out) as writer:
            for _ in range(90):
                writer.write("x" * 4096)
        assert writer._thread.is_alive()
        os.close(reading)
        writer._thread.join()
        with suppress(BrokenPipeError):  # what was left in its buffer
            out.close()
