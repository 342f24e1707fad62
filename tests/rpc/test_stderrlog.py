"""The tail in memory and the log on disk: bounded, whole lines, honest about what was dropped."""

import errno
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rpc.stderrlog import LineLog, Tail


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_the_tail_is_the_end_of_the_stream(pieces: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for piece in pieces:
        tail.feed(piece)
        assert len(tail._data) <= 2 * limit + len(piece)
    assert tail.text() == b"".join(pieces)[-limit:].decode("utf-8", "replace")


def test_only_whole_lines_are_written_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    log = LineLog(path, 1000)
    log.feed(b"one\ntw")
    assert path.read_bytes() == b"one\n"
    log.feed(b"o\nthr")
    assert path.read_bytes() == b"one\ntwo\n"
    log.close()
    assert path.read_bytes() == b"one\ntwo\nthr\n"


def test_a_silent_worker_leaves_no_log(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "w.log", 1000)
    log.close()
    assert list(tmp_path.iterdir()) == []


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


def test_a_log_that_cannot_even_be_opened_counts_its_lines(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = LineLog(tmp_path / "file" / "w.log", 1000)
    log.feed(b"one\ntwo\n")
    log.close()
    assert log.dropped == 2
