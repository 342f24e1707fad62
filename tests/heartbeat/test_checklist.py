"""HEARTBEAT.md: whether there is anything in it, and what becomes of files that cannot be read."""

import errno

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from errors import WorkerExited
from heartbeat.checklist import (
    Checklist,
    ChecklistState,
    is_effectively_empty,
    judge_checklist,
    read_checklist,
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
def test_a_file_is_judged_by_its_lines(body: bytes, state: ChecklistState) -> None:
    assert judge_checklist(body) == Checklist(state)


@pytest.mark.parametrize(
    "body",
    [b"# a\0b", b"\x7fELF\x01\x01\0\0", b"# caf\xe9 in latin-1\n", b"# cut \xc3", "# utf-16".encode("utf-16")],
)
def test_what_is_no_text_is_told_and_not_taken_for_an_empty_list(body: bytes) -> None:
    assert judge_checklist(body) == Checklist(ChecklistState.UNREADABLE, "HEARTBEAT.md is not a text in UTF-8")


@pytest.mark.parametrize(("size", "state"), [(262_144, ChecklistState.EMPTY), (262_145, ChecklistState.FILLED)])
async def test_only_a_file_that_was_read_to_its_end_is_empty(size: int, state: ChecklistState) -> None:
    async def read(name: str, limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        assert name == "HEARTBEAT.md"
        return (b"\n" * size)[:limit]

    assert await read_checklist(read) == Checklist(state)


def test_a_character_that_lies_across_the_bound_is_no_fault() -> None:
    assert judge_checklist(b"#" * 262_143 + "é".encode()) == Checklist(ChecklistState.FILLED)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(errno.ENOENT, "none"), Checklist(ChecklistState.MISSING)),
        (NotADirectoryError(errno.ENOTDIR, "none"), Checklist(ChecklistState.MISSING)),
        *(
            (error, Checklist(ChecklistState.UNREADABLE, f"HEARTBEAT.md cannot be read: {why}"))
            for error, why in [
                (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
                (ValueError("embedded null byte"), "embedded null byte"),
                (WorkerExited("its node was lost"), "its node was lost"),
            ]
        ),
    ],
)
async def test_no_file_is_no_problem_and_what_cannot_be_read_is_one(error: Exception, expected: Checklist) -> None:
    async def read(_name: str, _limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise error

    assert await read_checklist(read) == expected


@pytest.mark.usefixtures("virtual_time")
async def test_a_file_that_does_not_come_is_not_waited_for_for_long() -> None:
    async def read(_name: str, _limit: int) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    begun = trio.current_time()
    found = await read_checklist(read)
    assert trio.current_time() - begun == pytest.approx(5)
    assert found == Checklist(ChecklistState.UNREADABLE, "HEARTBEAT.md cannot be read: no answer within 5 s")
