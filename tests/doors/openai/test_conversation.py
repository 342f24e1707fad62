"""What of a client's messages is sent to a session that knows nothing yet, and to one that remembers."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doors.openai.prompts import ClientToolResult, answered_call_ids, full_prompt, incremental_prompt
from doors.openai.requests import ChatRequest, ModelInput, chat_input
from errors import UsageError

PIXEL = base64.b64encode(b"pixel").decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def request(*messages: dict[str, Any]) -> ModelInput:
    return chat_input(msgspec.convert({"model": "main", "messages": list(messages)}, ChatRequest))


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}}


def test_one_message_is_sent_as_it_is() -> None:
    alone = request(said("user", "/status"))
    assert full_prompt(alone).text == incremental_prompt(alone).text == "/status"


def test_a_session_that_knows_nothing_is_told_all_of_it_under_headings() -> None:
    prompt = full_prompt(
        request(
            said("system", "Be kind."),
            said("developer", "Be brief."),
            said("user", "hello"),
            said("assistant", None, tool_calls=[CALL]),
            said("tool", "grey", tool_call_id="c1"),
            said("assistant", "It is grey."),
            said("system", "It is late."),
            said("user", "bye"),
        )
    )
    assert prompt.text == (
        "Instructions:\n\nBe kind.\n\nBe brief.\n\nThe conversation so far:\n\nUser: hello\n\n"
        'Assistant called weather with {"city":"Bonn"}\n\nResult of weather: grey\n\nAssistant: It is grey.\n\n'
        "Now answer this:\n\nIt is late.\n\nbye"
    )
    assert prompt.results == []


def test_a_session_that_remembers_is_told_what_comes_after_the_assistant() -> None:
    prompt = incremental_prompt(
        request(
            said("system", "Be kind."),
            said("user", "hello"),
            said("assistant", "", tool_calls=[CALL]),
            said("tool", [{"type": "text", "text": "grey"}], tool_call_id="c1"),
            said("user", "one"),
            said("user", "two"),
        )
    )
    assert prompt == ("one\n\ntwo", [], [ClientToolResult("c1", "grey")])


def test_results_for_a_session_that_knows_nothing_are_part_of_what_was() -> None:
    lost = request(said("user", "how?"), said("assistant", "", tool_calls=[CALL]), said("tool", "g", tool_call_id="c1"))
    prompt = full_prompt(lost)
    assert "Result of weather: g\n\nNow answer this:\n\nGo on" in prompt.text
    assert prompt.results == []
    assert answered_call_ids(lost) == ["c1"]


def test_images_of_the_past_are_numbered_where_they_stood() -> None:
    messages = [
        said("user", [IMAGE]),
        said("assistant", "nice"),
        said("user", [{"type": "text", "text": "this?"}, IMAGE]),
    ]
    whole, news = full_prompt(request(*messages)), incremental_prompt(request(*messages))
    assert "User: [image 1]" in whole.text
    assert whole.text.endswith("this?\n[image 2]")
    assert [image.data for image in whole.images] == [PIXEL, PIXEL]
    assert (news.text, len(news.images), news.images[0].mime_type) == ("this?", 1, "image/png")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([said("assistant", "x")], "messages"),
        ([said("system", "x")], "messages"),
        ([said("user", "x"), said("assistant", "y")], "messages"),
        ([said("tool", "x")], "messages[0].tool_call_id"),
        ([said("user", [{"type": "input_audio"}])], "messages[0].content[0]"),
        ([said("user", [{"type": "image_url"}])], "messages[0].content[0]"),
        ([said("user", [{"type": "image_url", "image_url": "data:image/png;base64,%"}])], "messages[0].content[0]"),
        ([said("user", [{"type": "image_url", "image_url": "data:text/html;base64,AA=="}])], "messages[0].content[0]"),
        ([said("user", [IMAGE] * 33)], "messages[0].content[32]"),
        ([said("tool", [IMAGE], tool_call_id="c1")], "messages[0].content[0]"),
    ],
)
@pytest.mark.parametrize("prompt", [incremental_prompt, full_prompt])
def test_what_cannot_be_sent_is_named_by_its_place(messages: list[dict[str, Any]], param: str, prompt: Any) -> None:
    with pytest.raises(UsageError) as raised:
        prompt(request(*messages))
    assert raised.value.details["param"] == param


texts = st.integers(0, 10**6).map(lambda number: f"<{number}>")
conversations = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=8)


@given(conversations, texts)
def test_nothing_is_lost_and_the_last_message_comes_last(past: list[tuple[str, str]], last: str) -> None:
    asked = request(*(said(role, text) for role, text in past), said("user", last))
    whole, news = full_prompt(asked).text, incremental_prompt(asked).text
    at = -1
    for text in [text for _, text in past] + [last]:
        at = whole.index(text, at + 1)
    assert whole.endswith(news)
    assert news.endswith(last)
    assert not any(text in news and role == "assistant" for role, text in past if text not in news.split("\n\n"))
