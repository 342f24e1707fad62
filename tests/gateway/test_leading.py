"""What is shown of a text that may turn out to be silence."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.reply_filters import NoReplyFilter


def raw(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(text)) for text in texts]


def shown(pieces: list[msgspec.Raw]) -> list[str]:
    return [msgspec.json.decode(piece, type=str) for piece in pieces]


@pytest.mark.parametrize("texts", [["NO_REPLY"], ["NO", "_", "REPLY"], [" ", "NO_REPLY", "\n"]])
def test_silence_is_never_shown_in_whatever_pieces_it_comes(texts: list[str]) -> None:
    leading = NoReplyFilter()
    assert [leading.push(raw(text)) for text in texts] == [[]] * len(texts)
    assert leading.end() == []


def test_an_answer_that_begins_alike_is_shown_as_soon_as_it_differs() -> None:
    leading = NoReplyFilter()
    assert shown(leading.push(raw("NO", "_"))) == []
    assert shown(leading.push(raw("thing", " to", " see"))) == ["NO_thing", " to", " see"]
    later = raw("NO_REPLY")
    assert leading.push(later) is later


def test_an_answer_that_ends_while_it_is_held_back_is_shown_at_its_end() -> None:
    leading = NoReplyFilter()
    leading.push(raw("NO"))
    assert shown(leading.end()) == ["NO"]


def test_after_a_tool_call_a_new_text_may_be_silence_again() -> None:
    leading = NoReplyFilter()
    leading.push(raw("Let me look."))
    leading.end()
    assert leading.push(raw("NO_REPLY")) == []


@given(st.lists(st.text(max_size=8), max_size=8))
def test_no_character_of_an_answer_is_lost(texts: list[str]) -> None:
    leading = NoReplyFilter()
    seen = "".join(text for piece in texts for text in shown(leading.push(raw(piece)))) + "".join(shown(leading.end()))
    whole = "".join(texts)
    assert seen == ("" if whole.strip() in ("", "NO_REPLY") else whole)
