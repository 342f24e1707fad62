"""The tail in memory and the log on disk: bounded, whole lines, honest about what was dropped."""

import errno
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpc.stderr_log import LineLog, StderrTail
from wire.redaction import SecretMask


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r", b"two\nlines\n"])), st.integers(1, 50))
def test_the_tail_is_the_end_of_the_stream_from_where_a_line_begins(pieces: list[bytes], limit: int) -> None:
    tail = StderrTail(limit)
    for piece in pieces:
        tail.feed(piece)
        assert len(tail._data) <= 2 * limit + len(piece)
    stream = b"".join(pieces)
    if len(stream) > limit:
        lines = (*re.split(rb"[\r\n]", stream[-limit - 1 :], maxsplit=1), b"")[1]
        stream = lines if lines.strip() else stream[-limit:]
    assert tail.text() == stream.decode("utf-8", "replace")


@given(
    values=st.lists(st.text("ab\n", min_size=6, max_size=9), max_size=2),
    pieces=st.lists(st.text("ab\n", max_size=9)),
    limit=st.integers(1, 30),
)
def test_the_tail_is_the_end_of_the_stream_without_what_is_hidden(
    values: list[str], pieces: list[str], limit: int
) -> None:
    mask = SecretMask(values)
    tail = StderrTail(limit, mask=mask)
    said = "".join(text for piece in pieces for text in (piece, *values))
    for begin in range(0, len(said), 5):
        tail.feed(said[begin : begin + 5].encode())
        assert len(tail._data) <= 2 * limit + mask.longest + 5
    assert mask.text(said).endswith(tail.text())
    assert len(tail.text()) <= limit


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("begin", range(80, 120))
def test_of_a_line_longer_than_the_tail_the_end_is_shown_and_no_end_of_a_secret(begin: int, end: str) -> None:
    line = "x" * begin + "canary-0001" + "y" * (200 - begin) + end
    tail = StderrTail(100, mask=SecretMask(["canary-0001", "another-value-that-is-longer"]))
    for at in range(0, len(line), 7):
        tail.feed(line[at : at + 7].encode())
    shown = tail.text()
    assert line.replace("canary-0001", "***").endswith(shown)
    assert 100 - len("canary-0001") < len(shown) <= 100


def test_only_whole_lines_are_written_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    log = LineLog(path, 1000)
    log.feed(b"one\ntw")
    assert path.read_bytes() == b"one\n"
    log.feed(b"o\nthr")
    assert path.read_bytes() == b"one\ntwo\n"
    log.close()
    assert path.read_bytes() == b"one\ntwo\nthr\n"


def test_a_listener_is_told_whole_lines_without_secrets_whether_there_is_room_or_not(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "none" / "w.log", 1000, Disk(0).write, mask=SecretMask(["canary-0001"]))
    told: list[bytes] = []
    log.listener = told.append
    for data in (b"before canary-", b"0001 after\nrest", b" of it"):
        log.feed(data)
    log.close()
    assert told == [b"before *** after\n", b"rest of it\n"]


def test_a_silent_worker_leaves_no_log(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "w.log", 1000)
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_with_a_clock_each_line_has_its_time_and_whose_it_is(tmp_path: Path) -> None:
    grown: list[int] = []
    path = tmp_path / "w.log"
    log = LineLog(path, 1000, clock=iter([0.0, 1.5, 1.5, 1.5]).__next__, on_written=lambda: grown.append(1))
    log.note("started (agent a,\n pid 7)")
    log.feed(b"one\n\ntw")
    log.note("ended: killed by signal 9\x1b[2J")
    log.close()
    assert path.read_text().splitlines() == [
        "1970-01-01T00:00:00.000Z pool started (agent a, pid 7)",
        "1970-01-01T00:00:01.500Z stderr one",
        "1970-01-01T00:00:01.500Z stderr ",
        "1970-01-01T00:00:01.500Z stderr tw",
        "1970-01-01T00:00:01.500Z pool ended: killed by signal 9\\x1b[2J",
    ]
    assert len(grown) == 4


def test_two_files_are_kept_and_an_old_one_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    path.write_bytes(b"before\n")
    log = LineLog(path, 20)
    for number in range(10):
        log.feed(b"line %d\n" % number)
    log.close()
    assert path.read_bytes() == b"line 9\n"
    assert path.with_name("w.log.1").read_bytes() == b"line 7\nline 8\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_line_without_end_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    log = LineLog(path, 10**6)
    for _ in range(40):
        log.feed(b"x" * 4096)
        assert len(log._partial) < 64 * 1024
    log.close()
    assert path.read_bytes().replace(b"\n", b"") == b"x" * (40 * 4096)


@pytest.mark.parametrize("values", [["canary-0001"], ["canary-0001", "another-value-that-is-longer"]])
def test_no_piece_of_a_long_line_ends_inside_what_is_hidden(tmp_path: Path, values: list[str]) -> None:
    piece = 64 * 1024 + max(map(len, values))
    for begin in range(piece - 80, piece + 2):
        log = LineLog(tmp_path / f"{begin}.log", 10**6, mask=SecretMask(values))
        line = b"x" * begin + b"canary-0001" * 3 + b"y" * piece
        for data in (line[:piece], line[piece:], b"\n"):
            log.feed(data)
        log.close()
        written = (tmp_path / f"{begin}.log").read_bytes()
        assert written.count(b"\n") >= 2
        assert written.replace(b"\n", b"") == b"x" * begin + b"***" * 3 + b"y" * piece


class Disk:
    """Takes ``room`` bytes, then none."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = os.write(fd, data[: self.room])
        self.room -= taken
        return taken


def test_a_disk_that_fills_up_in_the_middle_of_a_line_drops_that_line_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w.log"
    disk = Disk(room=6)
    log = LineLog(path, 1000, disk.write)
    log.feed(b"one\ntwo\nthree\n")
    assert log.dropped == 2
    log.feed(b"four\n")
    assert log.dropped == 3
    disk.room = 1000
    log.feed(b"five\n")
    log.close()
    assert log.dropped == 3
    assert path.read_bytes() == b"one\ntw\nfive\n"


@pytest.mark.parametrize("kind", ["pipe that nobody reads", "pipe", "link"])
def test_what_a_worker_has_put_in_the_place_of_its_log_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, readers = tmp_path / "w.log", []
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
        readers = [os.open(path, os.O_RDONLY | os.O_NONBLOCK)] if kind == "pipe" else []
    log = LineLog(path, 1000)
    log.feed(b"one\ntwo\n")
    log.close()
    assert log.dropped == 2
    assert not (tmp_path / "elsewhere").exists()
    for reader in readers:
        os.close(reader)


def test_a_log_that_cannot_even_be_opened_counts_its_lines(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = LineLog(tmp_path / "file" / "w.log", 1000)
    log.feed(b"one\ntwo\n")
    log.close()
    assert log.dropped == 2


@given(st.lists(st.binary(max_size=9) | st.sampled_from([b"\x1b[2J", b"\r", b"\r\n", "\x9b31m ä".encode(), b"\n"])))
def test_the_log_controls_no_terminal_and_loses_nothing_else(pieces: list[bytes]) -> None:
    with TemporaryDirectory() as place:
        path = Path(place) / "w.log"
        log = LineLog(path, 1 << 20)
        for piece in [*pieces, b"\x1b]0;title\x07 ready\r\n"]:
            log.feed(piece)
        log.close()
        written = path.read_bytes()
    assert not set(written.replace(b"\r\n", b"\n")) & {*range(9), *range(11, 32), 127}
    assert not any("\x80" <= ch <= "\x9f" for ch in written.decode("utf-8", "replace"))
    assert written.endswith(b"\\x1b]0;title\\x07 ready\r\n")
    assert written.count(b"\n") == b"".join(pieces).count(b"\n") + 1
