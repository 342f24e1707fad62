"""What a model is sent: rows of a table for each step, and what holds for any conversation."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.sanitize import (
    IncrementalSanitizer,
    SanitizeRules,
    estimate_tokens,
    limit_history_turns,
    merge_roles,
    sanitize,
)
from tests.agent.history.drawing import called, messages, prompt, resulted, rules, said
from wire.entries import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)

IMAGE = ImageBlock("aGk=")
LEFT_OUT = TextBlock("[image left out: it holds no PNG, JPEG, GIF or WebP image]")
TOO_MANY = TextBlock("[image left out: there are too many, or too large ones]")


def user(*blocks: ContentBlock, origin: Any = "prompt", from_session: str | None = None) -> TranscriptMessage:
    return TranscriptMessage("user", [*blocks], origin=origin, from_session=from_session)


def model(*blocks: ContentBlock) -> TranscriptMessage:
    return TranscriptMessage("assistant", [*blocks])


def result(call_id: str, content: Any, *images: ImageBlock) -> TranscriptMessage:
    return user(ToolResultBlock(call_id, content, images=[*images]), origin="tool")


def missing(call_id: str) -> TranscriptMessage:
    (message,) = sanitize([called(call_id)], SanitizeRules())[1:]
    return message


NO_SENSE = [ToolUseBlock("c", "read", '{"path'), ToolUseBlock("", "read", {})]
ORDERED = [prompt("1"), called("a"), prompt("s", "steer"), resulted("a"), said("x"), prompt("2"), said("y")]
ABCD = [ImageBlock(f"aGk{letter}") for letter in "abcd"]


@pytest.mark.parametrize(
    ("rules", "before", "after"),
    [
        ({}, [user(TextBlock("hi"), from_session="main")],
         [user(TextBlock("[Message from another session: main]\n"), TextBlock("hi"))]),
        ({}, [user(TextBlock("look"), ImageBlock("aGk=", "image/tiff"), IMAGE)],
         [user(TextBlock("look"), LEFT_OUT, IMAGE)]),
        ({}, [user(ImageBlock(""), ImageBlock("aGk"))], [user(LEFT_OUT, LEFT_OUT)]),
        ({}, [prompt("1"), model(ThinkingBlock("hm"), TextBlock("a")), model(ThinkingBlock("hm"))],
         [prompt("1"), said("a")]),
        ({}, [prompt("1"), model(*NO_SENSE), resulted("c", "")],
         [prompt("1"), model(ToolUseBlock("c", "read", {"invalid_arguments": '{"path'})), resulted("c")]),
        ({}, [prompt("1"), resulted("c")], [prompt("1")]),
        ({}, [called("a", "a"), resulted("a")], [called("a"), resulted("a")]),
        ({}, [called("a", "b"), resulted("b"), resulted("a", "a")], [called("a", "b"), resulted("a", "b")]),
        ({}, [called("a"), prompt("and?"), resulted("a")], [called("a"), resulted("a"), prompt("and?")]),
        ({}, [called("a"), resulted("a"), called("a"), result("a", "second")],
         [called("a"), resulted("a"), called("a"), result("a", "second")]),
        ({}, [called("a"), prompt("and?"), called("a"), result("a", "second")],
         [called("a"), missing("a"), prompt("and?"), called("a"), result("a", "second")]),
        ({}, [called("a"), result("a", {"ok": True, "data": "x", "details": {"pid": 1}})],
         [called("a"), result("a", {"ok": True, "data": "x"})]),
        ({"turns": 2}, ORDERED, [prompt("s", "steer"), said("x"), prompt("2"), said("y")]),
        ({"images": 2}, [user(ABCD[0]), called("c"), result("c", "x", *ABCD[1:3]), user(ABCD[3])],
         [user(TOO_MANY), called("c"), result("c", "x", ABCD[2]), user(ABCD[3])]),
        ({"image_chars": 399}, [user(ImageBlock("a" * 400))], [user(TOO_MANY)]),
        ({"all_image_chars": 8}, [user(*ABCD)], [user(TOO_MANY, TOO_MANY, *ABCD[2:])]),
    ],
)  # fmt: skip
def test_a_conversation_is_cleaned(rules: Any, before: list[TranscriptMessage], after: list[TranscriptMessage]) -> None:
    assert sanitize(before, SanitizeRules(**rules)) == after


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    (block,) = missing("a").content
    assert isinstance(block, ToolResultBlock)
    assert (block.is_error, block.content["error"]) == (True, "The result of exec is not there.")


def test_history_is_cut_at_user_messages_and_neighbours_of_one_role_are_joined_where_a_provider_needs_it() -> None:
    assert limit_history_turns(ORDERED, 1) == ORDERED[5:]
    assert limit_history_turns(ORDERED, 3) == limit_history_turns(ORDERED, 99) == ORDERED
    joined = merge_roles([said("0"), called("a"), resulted("a"), prompt("1"), said("2")])
    assert [message.role for message in joined] == ["user", "assistant", "user", "assistant"]
    assert joined[2].content == [*resulted("a").content, *prompt("1").content]
    assert joined[2].origin == "prompt"


@settings(max_examples=60)
@given(st.lists(messages(), max_size=12), rules)
@example(
    [TranscriptMessage("assistant", [TextBlock("")]), TranscriptMessage("user", [], from_session="main")],
    SanitizeRules(turns=1, alternate=True),
)
def test_after_hygiene_every_call_has_exactly_one_result_and_hygiene_again_changes_nothing(
    history: list[TranscriptMessage], given_rules: SanitizeRules
) -> None:
    cleaned = sanitize(history, given_rules)
    for index, said_now in enumerate(cleaned):
        assert said_now.content
        called_ids = [call.id for call in said_now.calls]
        following = cleaned[index + 1].content if index + 1 < len(cleaned) else []
        answered = [block.tool_use_id for block in following if isinstance(block, ToolResultBlock)]
        if said_now.role == "assistant":
            assert answered == called_ids
            assert max(Counter(called_ids).values(), default=1) == 1
    results = [block for message in cleaned for block in message.content if isinstance(block, ToolResultBlock)]
    assert sum(len(message.calls) for message in cleaned) == len(results)
    if given_rules.alternate:
        assert [message.role for message in cleaned] == [("user", "assistant")[n % 2] for n in range(len(cleaned))]
    assert sanitize(cleaned, given_rules) == cleaned


@settings(max_examples=50)
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
    cleaner, plain = IncrementalSanitizer(), SanitizeRules()
    cleaner.sanitize([prompt("1"), said("one"), prompt("2")], plain)
    assert cleaner.sanitize([prompt("1"), said("eins")], plain)[0] == [prompt("1"), said("eins")]
    assert cleaner.sanitize([prompt("0"), said("eins"), prompt("2")], plain)[0][0] == prompt("0")


class _Growing(list[TranscriptMessage]):
    """A conversation that counts how many of its messages are read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.reads += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[TranscriptMessage]:
        self.reads += len(self)
        return super().__iter__()


def test_of_a_long_conversation_only_new_messages_are_read() -> None:
    history, cleaner = _Growing([prompt("long ago"), said("yes")] * 500), IncrementalSanitizer()
    first, _ = cleaner.sanitize(history, SanitizeRules())
    history.reads = 0
    for number in range(3):
        history += [prompt(str(number)), called(str(number)), resulted(str(number)), said(str(number))]
        again, _ = cleaner.sanitize(history, SanitizeRules())
        assert again is first  # so that a model too reads only what is new
    assert history.reads == 12


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
