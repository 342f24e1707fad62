"""A silent answer: not even its first letters are shown; any other text arrives whole, and as soon as it can."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.replies import NO_REPLY, NoReplyFilter, is_silent


def raw(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(text)) for text in texts]


def shown(pieces: list[msgspec.Raw]) -> list[str]:
    return [msgspec.json.decode(piece, type=str) for piece in pieces]


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


@given(texts, st.lists(st.integers(0, 30)), st.booleans())
def test_a_text_arrives_whole_in_any_pieces_unless_it_is_silent(text: str, places: list[int], at_once: bool) -> None:  # noqa: FBT001  # hypothesis passes it
    held, pieces = NoReplyFilter(), cut(text, places)
    before_the_end = "".join(
        shown(held.push(raw(*pieces))) if at_once else [t for p in pieces for t in shown(held.push(raw(p)))]
    )
    whole = before_the_end + "".join(shown(held.end()))
    assert whole == ("" if is_silent(text) or not text.strip() else text)
    if is_silent(text):
        assert before_the_end == ""


@given(texts)
def test_nothing_is_held_back_longer_than_it_may_become_a_silent_answer(text: str) -> None:
    held = NoReplyFilter()
    for end in range(1, len(text) + 1):
        pieces = held.push(raw(text[end - 1]))
        begun = text[:end].lstrip()
        if not (NO_REPLY.startswith(begun) or begun.rstrip() == NO_REPLY):
            assert pieces
            return


def test_after_the_first_piece_of_an_answer_all_pass_untouched_and_the_next_text_is_held_back_again() -> None:
    held = NoReplyFilter()
    assert shown(held.push(raw("NO", "_"))) == []
    assert shown(held.push(raw("thing", " to", " see"))) == ["NO_thing", " to", " see"]
    later = raw("NO_REPLY")
    assert held.push(later) is later
    assert held.end() == []
    assert held.push(raw("NO_REPLY")) == []


def test_white_space_without_end_is_not_kept() -> None:
    held = NoReplyFilter()
    for piece in (" " * 1000, "NO_REPLY", "\n" * 1000):
        for _ in range(1 if piece == "NO_REPLY" else 100):
            assert held.push(raw(piece)) == []
            assert len(held._held) <= 600
    assert shown(held.push(raw("x"))) == [" " * 256 + "NO_REPLY" + "\n" * 256 + "x"]
