"""Long results: cut at either end within both bounds, at line ends where one fits, the full text kept in a file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.pages import MAX_BYTES, MAX_LINES, PageBuilder, cut_text, excerpt, shorten

TEXTS = st.lists(st.sampled_from(["a", "€", "\n", "\r", "x" * 20_000, "😀\n" * 1500, "\n" * 1500]), max_size=12)


@given(TEXTS.map("".join), st.sampled_from(["start", "end"]))
def test_an_excerpt_is_within_the_bounds_and_is_an_end_of_the_text(text: str, keep: str) -> None:
    part = excerpt(text, "start" if keep == "start" else "end")
    assert len(part.text.encode()) <= MAX_BYTES
    assert part.text.count("\n") <= MAX_LINES
    assert text.startswith(part.text) if keep == "start" else text.endswith(part.text)
    assert part.is_whole == (part.text == text)
    assert part.is_whole or part.text


def test_what_fits_is_left_alone() -> None:
    assert shorten("short\n", keep="end", outputs="") == "short\n"
    assert shorten("short\n", keep="end", outputs="", lost=True) == "[the beginning is no longer kept]\nshort\n"


def test_either_end_can_be_kept_and_the_rest_lies_in_a_file(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(3000))
    end = shorten(text, keep="end", outputs=str(tmp_path / "outputs"))
    (path,) = (tmp_path / "outputs").iterdir()
    note, _, shown = end.partition("\n")
    assert note == f"[cut: the end is shown, 2000 of 3000 lines; the full text is in {path}]"
    assert shown.startswith("1000\n")
    assert path.read_text() == text
    start = shorten(text, keep="start", outputs="")
    assert start.endswith("\n1999\n[cut: the start is shown, 2000 of 3000 lines]")


def test_one_endless_line_is_cut_too() -> None:
    assert excerpt("é" * 100_000, "end").text == "é" * (MAX_BYTES // 2)
    assert shorten("x" * 100_000, keep="start", outputs="").endswith("x\n[cut: the start is shown, 1 of 1 lines]")


def test_a_full_disk_costs_the_file_and_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = shorten("x\n" * 3000, keep="end", outputs=str(tmp_path / "file" / "outputs"))
    assert text.startswith(
        "[cut: the end is shown, 2000 of 3000 lines; the rest could not be kept: Not a directory]\nx\n"
    )


def test_only_the_latest_files_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    (outputs / "of-somebody-else").mkdir(parents=True)
    for number in range(105):
        shorten(f"{number}\n" * 3000, keep="end", outputs=str(outputs))
    kept = {path.read_text().partition("\n")[0] for path in outputs.glob("output-*")}
    assert len(kept) == 100
    assert "104" in kept
    assert (outputs / "of-somebody-else").is_dir()


def test_calls_that_save_at_once_lose_none_of_their_outputs(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"

    def save(number: int) -> str:
        return shorten(f"{number}\n" * 3000, keep="end", outputs=str(outputs))

    for number in range(20):
        save(number)
    with ThreadPoolExecutor(8) as threads:
        shown = list(threads.map(save, range(200)))
    assert [text.partition("\n")[0] for text in shown if "; the full text is in " not in text] == []
    last = shown[-1].partition("]")[0].rpartition(" ")[2]
    assert Path(last).read_text() == "199\n" * 3000


@given(st.text(min_size=1), st.integers(min_value=0, max_value=400))
def test_a_cut_never_splits_a_character(text: str, at: int) -> None:
    data = text.encode()
    cut = cut_text(data[:at])
    assert text.startswith(cut)
    assert len(cut.encode()) > min(at, len(data)) - 4


@given(st.lists(st.binary(max_size=3000).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=60), st.data())
def test_a_page_holds_whole_lines_within_the_bounds(lines: list[bytes], data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 80))
    builder = PageBuilder(1, limit)
    more = not builder.feed(lines)
    page = builder.page(more=more)
    shown = lines[: page.last]
    assert page.text == b"".join(shown).decode(errors="replace")
    assert len(b"".join(shown)) <= MAX_BYTES
    assert len(shown) <= min(limit, MAX_LINES)
    assert more == (len(shown) < len(lines))
    if more:
        assert len(shown) == limit or len(b"".join(lines[: page.last + 1])) > MAX_BYTES


@pytest.mark.parametrize(
    ("taken", "note"),
    [
        ([b"a\n"], ""),
        ([b"a\n", b"b\n", b"c\n"], "\n[Showing lines 5-6 of 9. Use offset=7 to go on.]"),
        ([b"x" * 60_000], "\n\n[Line 5 is longer than 50000 bytes: this is its beginning. Use exec for the rest.]"),
    ],
)
def test_a_page_says_what_it_leaves_out(taken: list[bytes], note: str) -> None:
    builder = PageBuilder(5, 2)
    assert builder.page(more=not builder.feed(taken)).footer(9) == note
