"""Pages of log files: each line once, forward and backward, over both files and a rotation between two pages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.log_file import rotated_path
from wire.log_page import LogFilePage, read_page

LINES = st.lists(st.sampled_from([b"", b"a", b"b" * 70_000, b"c\xff"]), max_size=4)


def texts(page: LogFilePage) -> list[str]:
    return [line.text for line in page.lines]


@given(old=LINES, new=LINES, limit=st.integers(1, 9), max_bytes=st.sampled_from([1, 3, 1_000_000]))
def test_pages_backward_have_each_line_once_and_no_more_than_was_asked_for(
    tmp_path_factory: pytest.TempPathFactory, old: list[bytes], new: list[bytes], limit: int, max_bytes: int
) -> None:
    place = tmp_path_factory.mktemp("logs")
    path = place / "w1.log"
    rotated_path(path).write_bytes(b"".join(line + b"\n" for line in old))
    path.write_bytes(b"".join(line + b"\n" for line in new) + b"torn")
    pages = [read_page(place, "w1", limit=limit, max_bytes=max_bytes)]
    while pages[0].before is not None:
        pages.insert(0, read_page(place, "w1", limit=limit, max_bytes=max_bytes, before=pages[0].before))
    assert [text for page in pages for text in texts(page)] == [
        line[:max_bytes].decode("utf-8", "replace") for line in [*old, *new]
    ]
    for page in pages:
        assert len(page.lines) <= limit
        assert len(page.lines) <= 1 or sum(len(text) for text in texts(page)) <= max_bytes


def test_what_is_added_comes_once_also_over_a_rotation_and_a_gap_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"

    def added(after: str | None, limit: int = 10) -> LogFilePage:
        return read_page(tmp_path, "w1", limit=limit, max_bytes=1000, after=after)

    assert (texts(added(None)), added(None).after) == ([], None)
    path.write_bytes(b"one\ntw")
    first = added(None)
    assert texts(first) == ["one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    path.replace(rotated_path(path))
    path.write_bytes(b"")
    empty = added(None)
    assert texts(empty) == ["one", "two", "three"]
    path.write_bytes(b"four\n")
    second = added(first.after)
    assert (texts(second), second.before) == (["two", "three", "four"], None)
    assert texts(added(empty.after)) == ["four"]
    assert (texts(added(second.after)), added(second.after).before) == ([], None)
    cut = added(first.after, limit=1)
    assert texts(cut) == ["four"]
    assert cut.before is not None, "there is more between the position and this page"
    rotated_path(path).unlink()
    assert texts(added(first.after)) == ["four"]
    assert texts(read_page(tmp_path, "w1", limit=9, max_bytes=9, before=first.after)) == []
