"""The conversation as a chat-completions server wants it."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.models.base import ModelRequest, ToolDefinition
from agent.models.openai_messages import CompatFlags, ToolNameMap, request_body, to_messages
from wire.entries import (
    ContentBlock,
    ImageBlock,
    MessageOrigin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)
from wire.messages import AnswerOptions, JsonAnswer

Json = dict[str, Any]
IMAGE = ImageBlock("AAAA", "image/png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def user(*blocks: ContentBlock | str, origin: MessageOrigin = "prompt") -> TranscriptMessage:
    return TranscriptMessage("user", [TextBlock(b) if isinstance(b, str) else b for b in blocks], origin=origin)


def assistant(*blocks: ContentBlock | str) -> TranscriptMessage:
    return TranscriptMessage("assistant", [TextBlock(b) if isinstance(b, str) else b for b in blocks])


def results(*blocks: ContentBlock) -> TranscriptMessage:
    return TranscriptMessage("user", [*blocks], origin="tool")


def sent(*messages: TranscriptMessage, system: str = "", **dialect: bool) -> list[Json]:
    return to_messages(ModelRequest("r1.0", messages, system_prompt=system), ToolNameMap(), CompatFlags(**dialect))


def call_of(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("hi")], [{"role": "user", "content": "hi"}]),
        ([user("hi", "there")], [{"role": "user", "content": "hi\n\nthere"}]),
        ([user("")], []),
        (["be brief", user("hi")], [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]),
        ([user("look", IMAGE)], [{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE_PART]}]),
        ([assistant(ThinkingBlock("hm"), "yes")], [{"role": "assistant", "content": "yes"}]),
        ([assistant(ThinkingBlock("hm"))], []),
        (
            [assistant(ThinkingBlock("hm"), ToolUseBlock("c1", "read", {"path": "a"}))],
            [{"role": "assistant", "content": None, "tool_calls": [call_of("c1", "read", '{"path":"a"}')]}],
        ),
        (
            [assistant("so", ToolUseBlock("c1", "read", '{"pa'))],
            [
                {
                    "role": "assistant",
                    "content": "so",
                    "tool_calls": [call_of("c1", "read", '{"invalid_arguments":"{\\"pa"}')],
                }
            ],
        ),
        (
            [results(ToolResultBlock("c1", {"ok": True, "data": "x"}), ToolResultBlock("c2", "plain"))],
            [
                {"role": "tool", "tool_call_id": "c1", "content": '{"ok":true,"data":"x"}'},
                {"role": "tool", "tool_call_id": "c2", "content": "plain"},
            ],
        ),
        (
            [results(ToolResultBlock("c1", "seen", images=[IMAGE]))],
            [
                {"role": "tool", "tool_call_id": "c1", "content": "seen"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "The images that these tools returned:"}, IMAGE_PART],
                },
            ],
        ),
    ],
)
def test_each_message_becomes_what_the_server_knows(messages: list[Any], expected: list[Json]) -> None:
    system = messages.pop(0) if isinstance(messages[0], str) else ""
    assert sent(*messages, system=system) == expected


def test_an_image_is_told_as_a_text_where_the_model_takes_none() -> None:
    assert sent(user("look", IMAGE), images=False)[0]["content"].startswith("look\n\n[an image was left out")


def test_ids_that_a_server_refuses_are_replaced_alike_in_call_and_result() -> None:
    for call_id in ("r1.0.0", "x" * 41, "", "\u00fc"):
        called, result = sent(assistant(ToolUseBlock(call_id, "a", {})), results(ToolResultBlock(call_id, "")))
        assert called["tool_calls"][0]["id"] == result["tool_call_id"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", result["tool_call_id"])


def test_where_roles_must_alternate_neighbours_are_joined() -> None:
    conversation = [user("a"), user("b", IMAGE), assistant("x"), assistant("y", ToolUseBlock("c1", "t", {})), user("z")]
    joined = sent(*conversation, strict_roles=True)
    assert [message["role"] for message in joined] == ["user", "assistant", "user"]
    assert joined[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, IMAGE_PART]
    assert joined[1]["content"] == "x\n\ny"
    assert joined[1]["tool_calls"] == [call_of("c1", "t", "{}")]
    between = [user("a"), assistant(ToolUseBlock("c1", "t", {})), results(ToolResultBlock("c1", "")), user("b")]
    roles = [message["role"] for message in sent(*between, strict_roles=True)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@given(st.lists(st.sampled_from([user("a"), assistant("b"), user("c", origin="steer"), assistant(ThinkingBlock("d"))])))
def test_strict_roles_alternate_whatever_was_said(messages: list[TranscriptMessage]) -> None:
    roles = [message["role"] for message in sent(*messages, strict_roles=True)]
    assert roles == [("user", "assistant")[index % 2] for index in range(len(roles))]


@given(st.sets(st.one_of(st.text(max_size=80), st.text("ab. _-", max_size=4)), max_size=20))
def test_names_are_taken_by_servers_and_find_their_way_back(ours: set[str]) -> None:
    names = ToolNameMap(ours)
    theirs = {names.to_server(name) for name in ours}
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in theirs)
    assert {names.from_server(name) for name in theirs} == ours
    assert (ToolNameMap(["read"]).to_server("read"), names.from_server("invented...")) == ("read", "invented...")


def test_a_request_names_the_model_its_tools_and_how_hard_to_think() -> None:
    tool = ToolDefinition("my.tool", "Does it.", {"type": "object"})
    request = ModelRequest("r1.0", [user("hi")], thinking="high", tools=[tool])
    names = ToolNameMap([tool.name])
    body = request_body("m", request, names, CompatFlags())
    theirs = {"name": names.to_server("my.tool"), "description": "Does it.", "parameters": {"type": "object"}}
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": theirs}],
        "reasoning_effort": "high",
    }


def test_what_a_server_does_not_know_is_not_asked_for() -> None:
    request = ModelRequest("r1.0", [user("hi")], thinking="high")
    body = request_body("m", request, ToolNameMap(), CompatFlags(reasoning_effort=False, stream_options=False))
    assert set(body) == {"model", "messages", "stream"}
    assert "reasoning_effort" not in request_body("m", ModelRequest("r1.0", [user("hi")]), ToolNameMap(), CompatFlags())


CITY: Json = {"name": "city", "schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AnswerOptions(stop=["END"]), {"stop": ["END"]}),
        (AnswerOptions(json=JsonAnswer()), {"response_format": {"type": "json_object"}}),
        (AnswerOptions(json=JsonAnswer(**CITY)), {"response_format": {"type": "json_schema", "json_schema": CITY}}),
        (AnswerOptions(must_call=["a", "b"]), {"tool_choice": "required"}),
        (
            AnswerOptions(must_call=["my.tool"]),
            {"tool_choice": {"type": "function", "function": {"name": ToolNameMap().to_server("my.tool")}}},
        ),
    ],
)
def test_what_an_answer_is_to_be_goes_to_the_server(wanted: AnswerOptions, expected: Json) -> None:
    request = ModelRequest("r1.0", [user("hi")], answer=wanted)
    plain = request_body("m", ModelRequest("r1.0", [user("hi")]), ToolNameMap(), CompatFlags())
    assert request_body("m", request, ToolNameMap(), CompatFlags()) == plain | expected
    dialect = CompatFlags(answer_options=False)
    assert request_body("m", request, ToolNameMap(), dialect) == plain | ({"stop": ["END"]} if wanted.stop else {})
