"""The agent's stderr on a pipe that is read late."""

import os

from commands.attach_lines import StderrWriter

FILL = "x" * 1023 + "\n"


def test_of_lines_that_are_not_read_a_bounded_part_waits_and_a_note_says_that_others_are_missing() -> None:
    out, end = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as reader:
        stderr = StderrWriter(end)
        for _ in range(2000):
            stderr.add(FILL)
        assert stderr.has_pending
        read = _read_all(reader.fileno(), stderr)
        stderr.add("later\n")
        os.close(end)
        assert len(read) < 600 * 1024
        assert set(read.splitlines(keepends=True)) == {FILL.encode()}
        assert reader.readall() == b"[lines of the agent's stderr were left out: they were not read]\nlater\n"


def test_a_reader_that_has_left_ends_the_writing() -> None:
    out, end = os.pipe()
    os.close(out)
    stderr = StderrWriter(end)
    stderr.add("one\n")
    stderr.add("two\n")
    assert not stderr.has_pending
    os.close(end)


def _read_all(fd: int, stderr: StderrWriter) -> bytes:
    """What is in the pipe, and what waits for room in it."""
    os.set_blocking(fd, False)
    read = b""
    while True:
        try:
            read += os.read(fd, 1 << 20)
        except BlockingIOError:
            if not stderr.has_pending:
                os.set_blocking(fd, True)
                return read
        stderr.write()
