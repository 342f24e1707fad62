"""What reaches a terminal: nothing that controls it, and nothing wider than it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.terminal import clean, clean_stream, display_width, fit, wants_styles


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("ab cd", 4, "ab…"),
        ("日本", 4, "日本"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("日", 1, "…"),
        ("abc", 0, ""),
        ("abc", -5, ""),
        ("", 0, ""),
    ],
)
def test_a_text_is_cut_to_the_columns_that_there_are(text: str, columns: int, shown: str) -> None:
    assert fit(text, columns) == shown


@given(st.text(), st.integers(-3, 40))
def test_no_text_is_wider_than_it_may_be_and_one_that_fits_stays(text: str, columns: int) -> None:
    shown = fit(text, columns)
    assert display_width(shown) <= max(columns, 0)
    assert shown == text or display_width(text) > max(columns, 0)


@given(st.text())
def test_nothing_controls_a_terminal(text: str) -> None:
    assert clean(text).isprintable()
    kept = clean_stream(text)
    assert not [ch for ch in kept if ch not in "\n\t" and (ord(ch) < 32 or 127 <= ord(ch) < 160)]


def test_no_running_text_hides_a_character_or_turns_the_order_of_others() -> None:
    assert clean_stream("a\u202eb\u2066c\u200bd\ufeffe\U000e0041") == r"a\u202eb\u2066c\u200bd\ufeffe\U000e0041"
    whole = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, \U0001f469\u200d\U0001f4bb, \u2764\ufe0f, e\u0301\n\t"
    assert clean_stream(whole) == whole


@pytest.mark.parametrize(
    ("env", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_styles_are_for_those_who_want_them_and_can_show_them(env: dict[str, str], *, wanted: bool) -> None:
    assert wants_styles(env) is wanted
