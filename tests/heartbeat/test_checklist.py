"""HEARTBEAT.md: whether there is anything in it, and what becomes of files that cannot be read."""

import errno
import os
import re
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from heartbeat import checklist
from heartbeat.checklist import (
    CHECKLIST_NAME,
    Checklist,
    ChecklistState,
    is_effectively_empty,
    read_checklist,
    read_checklist_file,
)

EMPTY_LINES = [
    *("", "   ", "\t", "\u00a0", "#", "# Heartbeat", "### Every hour", "####### deep", "  # indented"),
    *("-", "*", "+", "- ", "  *  ", "- [ ]", "- []", "* [x]", "+ [X] ", "-[ ]", "1.", "12)"),
    *("```", "```text", "~~~", "~~~ yaml", "  ```  ", "````"),
]
FILLED_LINES = [
    *("look at the disk", "- look", "- [ ] look", "* [x] done", "1. look", "#look", "#1 look", "-look", "[ ]"),
    *("```df``` often", "<!-- note -->", "> quote", "--", "- -", "- [y]", "\\# x", "été", "0", "==="),
]


@pytest.mark.parametrize(("lines", "is_empty"), [(EMPTY_LINES, True), (FILLED_LINES, False)])
def test_the_frame_of_a_list_is_nothing_to_do_and_any_words_are(lines: list[str], *, is_empty: bool) -> None:
    assert [line for line in lines if is_effectively_empty(line) != is_empty] == []


EMPTY = st.lists(st.sampled_from(EMPTY_LINES), max_size=10)


@given(EMPTY, st.sampled_from(FILLED_LINES), EMPTY, st.sampled_from(["\n", "\r\n"]))
def test_one_filled_line_among_empty_ones_is_enough(before: list[str], line: str, after: list[str], end: str) -> None:
    assert is_effectively_empty(end.join([*before, *after]))
    assert not is_effectively_empty(end.join([*before, line, *after]))


def test_what_stands_in_a_code_fence_is_something_to_do() -> None:
    assert not is_effectively_empty("```sh\ndf -h\n```")


@pytest.mark.parametrize("piece", ["#", "`", "~", "-", " ", "- [", "\n", "# "])
def test_long_lines_are_judged_at_once(piece: str) -> None:
    is_effectively_empty(piece * 200_000)


def written(folder: Path, body: bytes) -> Path:
    path = folder / CHECKLIST_NAME
    path.write_bytes(body)
    return path


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b"", ChecklistState.EMPTY),
        (b"\n# Heartbeat\n\n- [ ]\n", ChecklistState.EMPTY),
        (b"\xef\xbb\xbf# With a byte order mark\n", ChecklistState.EMPTY),
        (b"# Heartbeat\r\n\r\n- look at the disk\r\n", ChecklistState.FILLED),
        ("- überprüfen".encode(), ChecklistState.FILLED),
    ],
)
def test_a_file_is_judged_by_its_lines(tmp_path: Path, body: bytes, state: ChecklistState) -> None:
    assert read_checklist_file(written(tmp_path, body)) == Checklist(state)


def test_no_file_is_no_problem(tmp_path: Path) -> None:
    assert read_checklist_file(tmp_path / CHECKLIST_NAME) == Checklist(ChecklistState.MISSING)
    assert read_checklist_file(tmp_path / "no folder" / CHECKLIST_NAME) == Checklist(ChecklistState.MISSING)
    (tmp_path / "file").touch()
    assert read_checklist_file(tmp_path / "file" / CHECKLIST_NAME) == Checklist(ChecklistState.MISSING)


@pytest.mark.parametrize(
    "body",
    [b"# a\0b", b"\x7fELF\x01\x01\0\0", b"# caf\xe9 in latin-1\n", b"# cut \xc3", "# utf-16".encode("utf-16")],
)
def test_what_is_no_text_is_told_and_not_taken_for_an_empty_list(tmp_path: Path, body: bytes) -> None:
    found = read_checklist_file(written(tmp_path, body))
    assert found == Checklist(ChecklistState.UNREADABLE, "HEARTBEAT.md is not a text in UTF-8")


def test_a_huge_file_is_read_to_a_bound_and_counts_as_filled(tmp_path: Path) -> None:
    path = written(tmp_path, b"\n" * 300_000)
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        assert read_checklist_file(path) == Checklist(ChecklistState.FILLED)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "state"), [(262_144, ChecklistState.EMPTY), (262_145, ChecklistState.FILLED)])
def test_only_a_file_that_was_read_to_its_end_is_empty(tmp_path: Path, size: int, state: ChecklistState) -> None:
    assert read_checklist_file(written(tmp_path, b"\n" * size)).state is state


def test_a_character_that_lies_across_the_bound_is_no_fault(tmp_path: Path) -> None:
    assert read_checklist_file(written(tmp_path, b"#" * 262_143 + "é".encode())) == Checklist(ChecklistState.FILLED)


def test_a_file_without_rights_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)  # the suite may run as root, who may read everything
    found = read_checklist_file(written(tmp_path, b""))
    assert found == Checklist(ChecklistState.UNREADABLE, "HEARTBEAT.md cannot be read: Permission denied")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "Is a directory|it is not a file"),
        (os.mkfifo, "it is not a file"),  # and it is not waited for
        (lambda path: path.symlink_to(path.name), "Too many levels"),
    ],
    ids=["directory", "pipe", "link to itself"],
)
def test_what_is_no_file_is_a_problem_and_nothing_stays_open(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    make(tmp_path / CHECKLIST_NAME)
    before = open_files()
    found = read_checklist_file(tmp_path / CHECKLIST_NAME)
    assert found.state is ChecklistState.UNREADABLE
    assert re.search(f"HEARTBEAT.md cannot be read: ({problem})", found.problem)
    read_checklist_file(written(tmp_path / "..", b"x"))
    assert open_files() == before


def test_a_path_that_cannot_be_is_a_problem() -> None:
    found = read_checklist_file(Path("a\0b"))
    assert found.state is ChecklistState.UNREADABLE
    assert "null" in found.problem


async def test_a_workspace_is_looked_at_beside_everything_else(tmp_path: Path) -> None:
    written(tmp_path, b"- look at the disk\n")
    assert await read_checklist(tmp_path) == Checklist(ChecklistState.FILLED)
    assert await read_checklist(tmp_path / "elsewhere") == Checklist(ChecklistState.MISSING)


async def test_a_file_system_that_does_not_answer_holds_up_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers, left = threading.Event(), threading.Event()

    def hang(path: Path) -> Checklist:
        answers.wait(20)
        left.set()
        return read_checklist_file(path)

    monkeypatch.setattr(checklist, "read_checklist_file", hang)
    limiter = trio.CapacityLimiter(1)
    try:
        for _ in range(3):  # the first hangs in its thread, the others find no room for one
            begun = trio.current_time()
            found = await read_checklist(tmp_path, limiter=limiter)
            assert trio.current_time() - begun == pytest.approx(5)
            assert found.state is ChecklistState.UNREADABLE
            assert found.problem == "HEARTBEAT.md cannot be read: no answer within 5 s"
        assert limiter.borrowed_tokens == 1
    finally:
        answers.set()
        await trio.to_thread.run_sync(partial(left.wait, 20))
