"""A call is shown page by page: nothing is lost between pages, and how much lies behind one is always said."""

from hypothesis import given
from hypothesis import strategies as st

from wire.call_page import CallPage, CallPart, bounded_page, page_of

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
