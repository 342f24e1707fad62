"""A conversation that grows is cleaned as it would be at once, and old messages are not looked at again."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from agent.history.compaction import estimate_tokens
from agent.history.sanitize import IncrementalSanitizer, SanitizeRules, sanitize
from tests.agent.history.building import called, prompt, resulted, said
from tests.agent.history.drawing import messages, rules
from wire.entries import ContentBlock, TextBlock, TranscriptMessage


@given(st.lists(st.lists(messages(), max_size=3), max_size=5), st.lists(rules, min_size=1, max_size=2))
def test_growing_makes_no_difference(parts: list[list[TranscriptMessage]], some_rules: list[SanitizeRules]) -> None:
    cleaner = IncrementalSanitizer()
    conversation: list[TranscriptMessage] = []
    for number, part in enumerate(parts):
        conversation += part
        now = some_rules[number % len(some_rules)]
        cleaned = sanitize(conversation, now)
        assert cleaner.sanitize(conversation, now) == (cleaned, estimate_tokens(cleaned))


def test_another_conversation_is_another_one() -> None:
    cleaner = IncrementalSanitizer()
    cleaner.sanitize([prompt("1"), said("one"), prompt("2")], SanitizeRules())
    assert cleaner.sanitize([prompt("1"), said("eins")], SanitizeRules())[0] == [prompt("1"), said("eins")]
    assert cleaner.sanitize([prompt("0"), said("eins"), prompt("2")], SanitizeRules())[0][0] == prompt("0")


def test_what_is_handed_out_is_the_callers() -> None:
    cleaner = IncrementalSanitizer()
    cleaner.sanitize([prompt("1")], SanitizeRules())[0].clear()
    assert cleaner.sanitize([prompt("1"), said("one")], SanitizeRules())[0] == [prompt("1"), said("one")]


class _Watched(list[ContentBlock]):
    """Content that counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[ContentBlock]:
        self.looks += 1
        return super().__iter__()


def test_text_that_is_added_costs_nothing_of_what_was_there_before() -> None:
    content = _Watched([TextBlock("long ago")])
    history = [TranscriptMessage("user", content), called("a"), resulted("a"), said("it ran")]
    cleaner = IncrementalSanitizer()
    cleaner.sanitize(history, SanitizeRules())
    content.looks = 0
    for number in range(3):
        history += [prompt(str(number)), said(str(number))]
        cleaner.sanitize(history, SanitizeRules())
    assert content.looks == 0
    cleaner.sanitize([*history, called("b"), resulted("b")], SanitizeRules())
    assert content.looks > 0
