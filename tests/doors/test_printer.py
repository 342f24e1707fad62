"""Lines for standard output: written in order, by a thread, and refused where nobody takes them."""

import io
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from app.console import Printer


def test_lines_are_written_in_order_before_it_is_left(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("w") as out, Printer(out) as printer:
        for number in range(50):
            printer.write(f"alert {number}\n    more")
    assert file.read_text() == "".join(f"alert {number}\n    more\n" for number in range(50))


def test_a_reader_that_does_not_read_is_told_of_and_waited_for_no_longer() -> None:
    reading, writing = os.pipe()
    out = os.fdopen(writing, "w")
    with Printer(out) as printer:
        with pytest.raises(BlockingIOError):
            fill(printer)
        started = time.monotonic()
    assert time.monotonic() - started < 20
    os.close(reading)
    assert printer.failed.wait(10)
    with suppress(BrokenPipeError):  # what was left in its buffer
        out.close()


def fill(printer: Printer) -> None:
    for _ in range(1000):
        printer.write("x" * 4096)


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "\\u2603 \\udc80"), ("utf-8", "\N{SNOWMAN} \\udc80")])
def test_what_the_encoding_does_not_have_is_written_all_the_same(tmp_path: Path, encoding: str, shown: str) -> None:
    file = tmp_path / "out"
    with file.open("w", encoding=encoding) as out, Printer(out) as printer:
        printer.write("\N{SNOWMAN} \udc80")
        printer.write("second")
    assert file.read_text(encoding) == f"{shown}\nsecond\n"


def test_a_closed_output_is_an_error_from_then_on() -> None:
    out = io.StringIO()
    with Printer(out) as printer:
        out.close()
        printer.write("first")
        assert printer.failed.wait(10)
        with pytest.raises(BrokenPipeError):
            printer.write("second")


def test_what_is_never_told_anything_starts_no_thread() -> None:
    before = set(threading.enumerate())
    with Printer(io.StringIO()):
        assert set(threading.enumerate()) <= before
