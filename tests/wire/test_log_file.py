"""Log files: the form of their lines, their last lines, and what is added, over rotation, each line once."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.log_file import GAP, LogReader, has_ended, line_head, log_names, parse_line, rotated_path

AT = 1767323045.678


@given(st.binary().filter(lambda text: b"\n" not in text), st.sampled_from(["stderr", "pool"]), st.integers(0, 2**33))
def test_a_line_is_read_as_it_was_written_whatever_it_says(text: bytes, source: Any, at: int) -> None:
    line = parse_line("w1", line_head(at / 8, source) + text)
    assert (line.source, line.text) == (source, text.decode("utf-8", "replace"))
    assert line.at == pytest.approx(at / 8, abs=0.001)


def test_what_has_no_time_is_a_line_of_the_worker_and_a_worker_cannot_write_for_the_pool() -> None:
    assert parse_line("w1", b"2026-13-99 pool ended: x")[1:] == (None, "stderr", "2026-13-99 pool ended: x")
    forged = line_head(AT, "stderr") + line_head(AT, "pool") + b"ended: exited with code 0"
    assert not has_ended([parse_line("w1", forged)])
    assert has_ended([parse_line("w1", line_head(AT, "pool") + b"ended: exited with code 0")])


def test_a_line_of_the_supervisor_has_the_time_that_stands_in_it() -> None:
    line = parse_line("supervisor", b'{"ts":"2026-01-02T03:04:05.678Z","event":"ready"}')
    assert line.at == pytest.approx(AT)
    assert line.source == "log"
    assert parse_line("supervisor", b"Traceback (most recent call last):").at is None


@given(
    before=st.lists(st.sampled_from([b"", b"a", b"b" * 70_000, b"c\xff"]), max_size=4),
    now=st.lists(st.sampled_from([b"", b"a", b"b" * 70_000, b"c\xff"]), max_size=4),
    limit=st.integers(0, 9),
)
def test_the_last_lines_are_those_of_both_files_in_order(
    tmp_path_factory: pytest.TempPathFactory, before: list[bytes], now: list[bytes], limit: int
) -> None:
    place = tmp_path_factory.mktemp("logs")
    path = place / "w1.log"
    rotated_path(path).write_bytes(b"".join(line + b"\n" for line in before))
    path.write_bytes(b"".join(line + b"\n" for line in now))
    with LogReader(place, "w1") as reader:
        shown = [line.text for line in reader.last(limit)]
    lines = [line.decode("utf-8", "replace") for line in [*before, *now]]
    assert shown == lines[max(0, len(lines) - limit) :]


def test_lines_before_a_time_are_left_out_and_those_without_one_stay_with_the_line_before(tmp_path: Path) -> None:
    lines = [line_head(AT, "stderr") + b"old", b"its rest", line_head(AT + 60, "stderr") + b"new", b"its rest too"]
    (tmp_path / "w1.log").write_bytes(b"\n".join(lines) + b"\n")
    with LogReader(tmp_path, "w1") as reader:
        assert [line.text for line in reader.last(10, AT + 1)] == ["new", "its rest too"]
        assert reader.last(10, AT + 100) == []


def test_each_line_comes_once_before_or_after_also_over_rotation(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    path.write_bytes(b"one\ntwo\n")
    with LogReader(tmp_path, "w1") as reader, path.open("ab", buffering=0) as file:
        file.write(b"three\nfo")
        assert [line.text for line in reader.last(10)] == ["one", "two"]
        assert [line.text for line in reader.read()] == ["three"]
        file.write(b"ur\n")
        path.replace(rotated_path(path))
        path.write_bytes(b"five\n")
        assert [line.text for line in reader.last(10)] == ["one", "two"], "the past is the past"
        assert [line.text for line in reader.read()] == ["four", "five"]
        assert reader.read() == []


def test_where_files_were_replaced_faster_than_they_were_read_a_mark_says_so_and_what_is_left_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w1.log"
    path.write_bytes(b"one\n")
    with LogReader(tmp_path, "w1") as reader:
        for text in (b"two\n", b"three\n", b"four\n"):
            path.replace(rotated_path(path))
            path.write_bytes(text)
        assert [line.text for line in reader.read()] == [GAP, "three", "four"]
        assert reader.read() == []


def test_a_log_that_begins_later_is_read_from_its_begin(tmp_path: Path) -> None:
    with LogReader(tmp_path, "w1") as reader:
        assert reader.read() == reader.last(10) == []
        (tmp_path / "w1.log").write_bytes(b"one\n")
        assert [line.text for line in reader.read()] == ["one"]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_log_is_neither_followed_nor_waited_for(tmp_path: Path, kind: str) -> None:
    if kind == "link":
        (tmp_path / "secret").write_text("secret\n")
        (tmp_path / "w1.log").symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(tmp_path / "w1.log")
    with LogReader(tmp_path, "w1") as reader:
        assert reader.last(10) == reader.read() == []


def test_logs_are_listed_by_their_last_line_without_the_supervisors(tmp_path: Path) -> None:
    for at, name in enumerate(["w10.log", "w2.log.1", "w2.log", "w3.log.1", "supervisor.log", "other.txt"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert log_names(tmp_path) == ["w10", "w2", "w3"]
    assert log_names(tmp_path / "none") == []
