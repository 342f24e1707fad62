"""A silent answer: nobody sees it, not even its first letters; any other text arrives whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.reply_filters import NO_REPLY, NoReplyBuffer, is_silent


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


@pytest.mark.parametrize("text", ["NO_REPLY", " \n NO_REPLY\t\n"])
def test_the_token_alone_is_silent(text: str) -> None:
    assert is_silent(text)


@pytest.mark.parametrize("text", ["", "NO_REPLY.", "no_reply", "NO REPLY", "NO_REPLY NO_REPLY", "so: NO_REPLY"])
def test_anything_else_is_not(text: str) -> None:
    assert not is_silent(text)


near_tokens = st.sampled_from(["NO_REPLY", "NO", "NO_", "NO REPLY", "NO_REPLYx", "NO_REPLY x", " \n", ""])
texts = st.one_of(
    st.text(max_size=20),
    st.builds("{}{}{}".format, st.sampled_from(["", " ", "\n\n"]), near_tokens, st.sampled_from(["", " ", "\n", "x"])),
)


@given(texts, st.lists(st.integers(0, 30)))
def test_a_text_arrives_whole_in_any_pieces_unless_it_is_silent(text: str, places: list[int]) -> None:
    held = NoReplyBuffer()
    shown = [held.push(piece) for piece in cut(text, places)]
    before_the_end = "".join(shown)
    whole = before_the_end + held.end()
    assert whole == ("" if is_silent(text) or not text.strip() else text)
    if is_silent(text):
        assert before_the_end == ""


@given(texts)
def test_nothing_is_held_back_longer_than_it_may_become_a_silent_answer(text: str) -> None:
    held = NoReplyBuffer()
    for end in range(1, len(text) + 1):
        shown = held.push(text[end - 1])
        begun = text[:end].lstrip()
        if not (NO_REPLY.startswith(begun) or begun.rstrip() == NO_REPLY):
            assert shown
            return


def test_the_next_text_is_held_back_again() -> None:
    held = NoReplyBuffer()
    assert held.push("Hello") == "Hello"
    assert held.push("NO_REPLY") == "NO_REPLY"
    assert held.end() == ""
    assert held.push("NO_REPLY") == ""
    assert held.end() == ""
    assert held.push("NO") == ""
    assert held.end() == "NO"


def test_white_space_without_end_is_not_kept() -> None:
    held = NoReplyBuffer()
    for _ in range(100):
        assert held.push(" " * 1000) == ""
        assert len(held._held) <= 600
    held.push("NO_REPLY")
    for _ in range(100):
        assert held.push("\n" * 1000) == ""
        assert len(held._held) <= 600
    assert held.push("x") == " " * 256 + "NO_REPLY" + "\n" * 256 + "x"
