"""Tools of the client: calls go out, results come back, with a session of any kind; and agents that take none."""

import uuid
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.doors.openai.conftest import Ask, Pool, text_of, wait_until_forgotten

pytestmark = pytest.mark.process

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Look at the sky.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = 'TOOL:weather {"city": "Bonn"} TELL'
ASK_TWICE = 'TOOL:weather {"city": "Bonn"} TOOL:weather {"city": "Rom"} TELL'


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]


def answered(said: list[dict[str, Any]], message: Any, *contents: str) -> list[dict[str, Any]]:
    """The conversation as a client goes on with it."""
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": content}
        for call, content in zip(message.tool_calls, contents, strict=True)
    ]
    return [*said, message.model_dump(exclude_none=True), *results]


@pytest.mark.parametrize("named", [False, True])
def test_calls_go_out_and_results_come_back(ask: Ask, pool: Pool, *, named: bool) -> None:
    session: dict[str, Any] = {"user": f"s-{uuid.uuid4().hex}"} if named else {}
    said = asked(ASK)
    first = ask(said, tools=[WEATHER], **session).choices[0]
    [call] = first.message.tool_calls
    assert (first.finish_reason, first.message.content) == ("tool_calls", None)
    assert (call.type, call.function.name, call.function.arguments) == ("function", "weather", '{"city":"Bonn"}')
    last = ask(answered(said, first.message, "grey over Bonn"), tools=[WEATHER], **session).choices[0]
    assert (last.finish_reason, last.message.content) == ("stop", "grey over Bonn")
    wait_until_forgotten(pool)


def test_one_call_may_follow_another(ask: Ask, pool: Pool) -> None:
    said = asked(ASK_TWICE)
    for city in ("Bonn", "Rom"):
        message = ask(said, tools=[WEATHER]).choices[0].message
        assert city in message.tool_calls[0].function.arguments
        said = answered(said, message, f"grey over {city}")
    assert ask(said, tools=[WEATHER]).choices[0].message.content == "grey over Rom"
    wait_until_forgotten(pool)


def test_calls_may_go_out_together(ask: Ask) -> None:
    said = asked(f"{ASK_TWICE} PARALLEL")
    message = ask(said, tools=[WEATHER]).choices[0].message
    assert len({call.id for call in message.tool_calls}) == 2
    last = ask(answered(said, message, "grey", "blue"), tools=[WEATHER]).choices[0]
    assert "blue" in last.message.content


def test_a_stream_tells_calls_too(client: OpenAI) -> None:
    messages: Any = asked(ASK)
    tools: Any = [WEATHER]
    with client.chat.completions.stream(model="main", messages=messages, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"city":"Bonn"}'
    messages = answered(messages, message, "blue")
    chunks = client.chat.completions.create(model="main", messages=messages, tools=tools, stream=True)
    assert text_of(chunks) == "blue"


def test_the_words_that_come_with_results_are_heard(ask: Ask) -> None:
    said = asked(ASK)
    message = ask(said, tools=[WEATHER]).choices[0].message
    said = [*answered(said, message, "grey"), {"role": "user", "content": "and now hello"}]
    assert 'You said: "and now hello"' in ask(said, tools=[WEATHER]).choices[0].message.content


def test_results_whose_session_is_gone_are_told_with_all_the_rest(ask: Ask, pool: Pool) -> None:
    said = asked(ASK)
    message = ask(said, tools=[WEATHER]).choices[0].message
    for key in pool.sessions():
        if key.startswith("openai:"):
            pool.call("sessions.delete", session=key)
    said[1]["content"] = "How is it there?"
    told = ask(answered(said, message, "grey over Bonn")).choices[0].message.content
    assert (
        'User: How is it there?\n\nAssistant called weather with {"city":"Bonn"}\n\n'
        "Result of weather: grey over Bonn\n\nNow answer this:\n\nGo on from here" in told
    )


def test_a_result_of_no_call_is_refused(ask: Ask) -> None:
    session = f"s-{uuid.uuid4().hex}"
    ask("hello", user=session)
    said = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "nobody", "content": "x"}]
    with pytest.raises(openai.BadRequestError, match="no call 'nobody' waits for a result"):
        ask(said, user=session)


def test_without_a_choice_no_tool_is_offered(ask: Ask) -> None:
    answer = ask(ASK, tools=[WEATHER], tool_choice="none").choices[0]
    assert (answer.finish_reason, answer.message.tool_calls) == ("stop", None)


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_takes_no_tools_says_so_at_once(ask: Ask, pool: Pool, *, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="takes no tools from its client"):
        ask(ASK, model="p", tools=[WEATHER], stream=stream)
    assert not any(worker["agent"] == "p" for worker in pool.supervisor.status()["workers"])


@pytest.mark.parametrize("name", ["read", "edit"])
def test_a_tool_with_the_name_of_one_of_the_agents_own_is_the_clients(ask: Ask, name: str) -> None:
    """Coding clients bring tools of just these names."""
    tool = {"type": "function", "function": {"name": name, "description": "A file of the client's."}}
    said = asked(f'TOOL:{name} {{"path": "a.txt"}} TELL')
    message = ask(said, tools=[tool]).choices[0].message
    assert [call.function.name for call in message.tool_calls] == [name]
    assert ask(answered(said, message, "the client's file"), tools=[tool]).choices[0].message.content == (
        "the client's file"
    )
