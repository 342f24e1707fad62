"""A conversation that grows is cleaned as it would be at once, and old messages are not looked at again."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from agent.history.clean import Cleaner, Rules, clean
from agent.history.compaction import tokens_of
from tests.agent.history.building import called, prompt, resulted, said
from tests.agent.history.drawing import messages, rules
from wire.entries import Block, TextBlock, TranscriptMessage


@given(st.lists(st.lists(messages(), max_size=3), max_size=5), st.lists(rules, min_size=1, max_size=2))
def test_growing_makes_no_difference(parts: list[list[TranscriptMessage]], some_rules: list[Rules]) -> None:
    cleaner = Cleaner()
    conversation: list[TranscriptMessage] = []
    for number, part in enumerate(parts):
        conversation += part
        now = some_rules[number % len(some_rules)]
        cleaned = clean(conversation, now)
        assert cleaner.clean(conversation, now) == (cleaned, tokens_of(cleaned))


def test_another_conversation_is_another_one() -> None:
    cleaner = Cleaner()
    cleaner.clean([prompt("1"), said("one"), prompt("2")], Rules())
    assert cleaner.clean([prompt("1"), said("eins")], Rules())[0] == [prompt("1"), said("eins")]
    assert cleaner.clean([prompt("0"), said("eins"), prompt("2")], Rules())[0][0] == prompt("0")


def test_what_is_handed_out_is_the_callers() -> None:
    cleaner = Cleaner()
    cleaner.clean([prompt("1")], Rules())[0].clear()
    assert cleaner.clean([prompt("1"), said("one")], Rules())[0] == [prompt("1"), said("one")]


class _Watched(list[Block]):
    """Content that counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[Block]:
        self.looks += 1
        return super().__iter__()


def test_text_that_is_added_costs_nothing_of_what_was_there_before() -> None:
    content = _Watched([TextBlock("long ago")])
    history = [TranscriptMessage("user", content), called("a"), resulted("a"), said("it ran")]
    cleaner = Cleaner()
    cleaner.clean(history, Rules())
    content.looks = 0
    for number in range(3):
        history += [prompt(str(number)), said(str(number))]
        cleaner.clean(history, Rules())
    assert content.looks == 0
    cleaner.clean([*history, called("b"), resulted("b")], Rules())
    assert content.looks > 0
