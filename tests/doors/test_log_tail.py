"""The latest lines of the log: bounded, and read on from where a reader stands."""

from hypothesis import given
from hypothesis import strategies as st

from app.log import LogTail

ALL = {"limit": 5000, "max_bytes": 1_000_000}


def _filled(count: int, kept_bytes: int = 1_000_000) -> LogTail:
    tail = LogTail(kept_bytes)
    for number in range(count):
        tail.add(f"line {number:04}")
    return tail


def test_the_latest_lines_come_first_and_new_ones_after_the_cursor() -> None:
    tail = _filled(10)
    page = tail.read(None, 3, 1_000_000)
    assert (page.lines, page.cursor, page.truncated, page.reset) == (
        ["line 0007", "line 0008", "line 0009"],
        100,
        True,
        False,
    )
    tail.add("another\nof two lines")
    page = tail.read(page.cursor, **ALL)
    assert (page.lines, page.truncated) == (["another", "of two lines"], False)
    assert tail.read(page.cursor, **ALL).lines == []


def test_no_more_is_kept_or_read_than_allowed() -> None:
    tail = _filled(100, kept_bytes=200)
    assert len(tail.read(None, **ALL).lines) == 20
    page = tail.read(0, **ALL)
    assert (page.lines[0], page.truncated) == ("line 0080", True), "what went is said to be missing"
    assert tail.read(None, 5000, 25).lines == ["line 0098", "line 0099"]
    tail.add("x" * 100_000)
    assert tail.read(None, **ALL).lines == []


def test_a_cursor_of_an_earlier_supervisor_begins_at_the_begin() -> None:
    page = _filled(2).read(10_000, **ALL)
    assert (page.lines, page.reset) == (["line 0000", "line 0001"], True)


def test_a_line_has_no_colours_and_is_cut_where_it_is_long() -> None:
    tail = LogTail()
    tail.add("\x1b[31mred\x1b[0m\n" + "ä" * 20_000)
    red, long = tail.read(None, **ALL).lines
    assert (red, len(long)) == ("red", 8192)


@given(st.lists(st.text(alphabet="aä\n", max_size=20), max_size=30), st.integers(1, 10))
def test_a_reader_that_goes_on_from_its_cursor_reads_each_line_once(texts: list[str], at_once: int) -> None:
    tail, cursor, read = LogTail(), 0, list[str]()
    for number, text in enumerate(texts, 1):
        tail.add(text)
        if number % at_once == 0:
            page = tail.read(cursor, **ALL)
            cursor, read = page.cursor, read + page.lines
    read += tail.read(cursor, **ALL).lines
    assert read == [line for text in texts for line in text.split("\n")]
