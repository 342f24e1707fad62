"""What a model is sent: rows of a table for each step, and what must hold for any conversation whatever."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.history.sanitize import SanitizeRules, limit_history_turns, merge_roles, sanitize
from tests.agent.history.building import called, prompt, resulted, said
from tests.agent.history.drawing import messages, rules
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
LEFT_OUT = "[image left out: it holds no PNG, JPEG, GIF or WebP image]"


def user(*blocks: ContentBlock, origin: Any = "prompt", from_session: str | None = None) -> TranscriptMessage:
    return TranscriptMessage("user", [*blocks], origin=origin, from_session=from_session)


def model(*blocks: ContentBlock) -> TranscriptMessage:
    return TranscriptMessage("assistant", [*blocks])


def result(call_id: str, content: Any, *images: ImageBlock) -> TranscriptMessage:
    return user(ToolResultBlock(call_id, content, images=[*images]), origin="tool")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [user(TextBlock("hi"), from_session="main")],
            [user(TextBlock("[Message from another session: main]\n"), TextBlock("hi"))],
            id="from another session",
        ),
        pytest.param(
            [user(TextBlock("look"), ImageBlock("aGk=", "image/tiff"), IMAGE)],
            [user(TextBlock("look"), TextBlock(LEFT_OUT), IMAGE)],
            id="no image",
        ),
        pytest.param([user(ImageBlock(""))], [user(TextBlock(LEFT_OUT))], id="an empty image"),
        pytest.param([user(ImageBlock("aGk"))], [user(TextBlock(LEFT_OUT))], id="half an image"),
        pytest.param(
            [prompt("1"), model(ThinkingBlock("hm"), TextBlock("a")), model(ThinkingBlock("hm"))],
            [prompt("1"), said("a")],
            id="thoughts",
        ),
        pytest.param(
            [prompt("1"), model(ToolUseBlock("c", "read", '{"path'), ToolUseBlock("", "read", {})), resulted("c", "")],
            [prompt("1"), model(ToolUseBlock("c", "read", {"invalid_arguments": '{"path'})), resulted("c")],
            id="calls that make no sense",
        ),
        pytest.param([prompt("1"), resulted("c")], [prompt("1")], id="a result of no call"),
        pytest.param(
            [called("a", "b"), resulted("b"), resulted("a", "a")],
            [called("a", "b"), resulted("a", "b")],
            id="results in call order, once",
        ),
        pytest.param(
            [called("a"), prompt("and?"), resulted("a")],
            [called("a"), resulted("a"), prompt("and?")],
            id="a result in the wrong place",
        ),
        pytest.param(
            [called("a"), resulted("a"), called("a"), result("a", "second")],
            [called("a"), resulted("a"), called("a"), result("a", "second")],
            id="an id used again",
        ),
        pytest.param(
            [called("a"), result("a", {"ok": True, "data": "x", "details": {"pid": 1}})],
            [called("a"), result("a", {"ok": True, "data": "x"})],
            id="details are not for the model",
        ),
    ],
)
def test_a_conversation_is_cleaned(before: list[TranscriptMessage], after: list[TranscriptMessage]) -> None:
    assert sanitize(before, SanitizeRules()) == after


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    _, answer = sanitize([called("a")], SanitizeRules())
    (block,) = answer.content
    assert isinstance(block, ToolResultBlock)
    assert block.is_error
    assert block.content["error"] == "The result of exec is not there."


def test_the_result_of_a_later_call_with_the_same_id_is_not_the_earlier_ones() -> None:
    _, missing, *rest = sanitize([called("a"), prompt("and?"), called("a"), result("a", "second")], SanitizeRules())
    (block,) = missing.content
    assert isinstance(block, ToolResultBlock)
    assert block.is_error
    assert rest == [prompt("and?"), called("a"), result("a", "second")]


def test_the_latest_images_are_kept() -> None:
    images = [ImageBlock(f"aGk{letter}") for letter in "abcd"]
    history = [user(images[0]), called("c"), result("c", "x", images[1], images[2]), user(images[3])]
    cleaned = sanitize(history, SanitizeRules(images=2))
    note = TextBlock("[image left out: there are too many, or too large ones]")
    assert cleaned == [user(note), called("c"), result("c", "x", images[2]), user(images[3])]
    assert sanitize([user(ImageBlock("a" * 400))], SanitizeRules(image_chars=399)) == [user(note)]
    assert sanitize([user(*images)], SanitizeRules(all_image_chars=8)) == [user(note, note, *images[2:])]


def test_history_is_cut_at_the_last_user_messages_and_paired_again() -> None:
    history = [prompt("1"), called("a"), prompt("steer", "steer"), resulted("a"), said("x"), prompt("2"), said("y")]
    assert limit_history_turns(history, 1) == history[5:]
    assert limit_history_turns(history, 3) == limit_history_turns(history, 99) == history
    assert sanitize(history, SanitizeRules(turns=2)) == [prompt("steer", "steer"), said("x"), prompt("2"), said("y")]


def test_neighbours_of_one_role_become_one_message_where_a_provider_needs_it() -> None:
    history = [said("0"), called("a"), resulted("a"), prompt("1"), said("2")]
    joined = merge_roles(history)
    assert [message.role for message in joined] == ["user", "assistant", "user", "assistant"]
    assert joined[2].content == [*resulted("a").content, *prompt("1").content]
    assert joined[2].origin == "prompt"


# --- whatever the conversation is -------------------------------------------------------------------------------------


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
    assert sum(len(m.calls) for m in cleaned) == sum(
        isinstance(block, ToolResultBlock) for m in cleaned for block in m.content
    )
    if given_rules.alternate:
        roles = [m.role for m in cleaned]
        assert roles == ["user" if index % 2 == 0 else "assistant" for index in range(len(roles))]
    assert sanitize(cleaned, given_rules) == cleaned
