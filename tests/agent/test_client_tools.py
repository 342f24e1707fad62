"""Tools of the client: the run ends with their calls, the next prompt, to any worker, brings the results."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agent.client_tools import ClientToolsError, definitions_of, results_for
from agent.models.base import ToolDefinition
from tests.agent.inprocess import Client, worker
from wire.entries import ToolUseBlock

WEATHER: dict[str, Any] = {"name": "weather", "description": "how it is", "parameters": {"type": "object"}}
ASK = 'TOOL:weather {"where":"here"} then TELL'
PARALLEL = 'PARALLEL TOOL:read {"path":"none"} TOOL:weather {"where":"here"} TELL'


async def results_of(client: Client) -> list[tuple[str, Any]]:
    messages = (await client.call("get_messages"))["messages"]
    blocks = [block for message in messages for block in message["content"]]
    return [(block["tool_use_id"], block["content"]) for block in blocks if block["type"] == "tool_result"]


async def test_a_run_ends_with_the_calls_and_the_next_prompt_goes_on_with_their_results() -> None:
    async with worker("--no-session") as client:
        asked = await client.prompt(ASK, client_tools=[WEATHER])
        assert asked.stop_reason == "tool_calls"
        (call,) = asked.calls
        assert (call["name"], call["input"]) == ("weather", {"where": "here"})
        result = {"tool_use_id": call["id"], "content": "it rains"}
        told = await client.prompt("", client_tools=[WEATHER], tool_results=[result])
        assert (told.stop_reason, told.text, told.calls) == ("stop", "it rains", [])


async def test_the_agents_own_calls_of_the_same_answer_are_run_before() -> None:
    async with worker("--no-session") as client:
        asked = await client.prompt(PARALLEL, client_tools=[WEATHER])
        assert [call["name"] for call in asked.calls] == ["weather"]
        assert [result["error_type"] for _, result in await results_of(client)] == ["runtime"]
        given = {"tool_use_id": asked.calls[0]["id"], "content": {"rain": True}}
        assert (await client.prompt("", tool_results=[given])).text == '{"rain":true}'


async def test_a_client_tool_takes_the_place_of_the_agents_own_of_that_name_for_its_run(workspace: Path) -> None:
    (workspace / "a.txt").write_text("the worker's own file")
    ask = 'TOOL:read {"path":"a.txt"} TELL'
    async with worker() as client:
        asked = await client.prompt(ask, client_tools=[{**WEATHER, "name": "read"}])
        (call,) = asked.calls
        given = {"tool_use_id": call["id"], "content": "the client's file"}
        assert (await client.prompt("", tool_results=[given])).text == "the client's file"
        assert "the worker's own file" in (await client.prompt(ask)).text


async def test_what_an_answer_is_to_be_is_told_to_a_model_that_takes_no_such_parameter_for_one_run() -> None:
    async with worker("--no-session", "--append-system-prompt", "Be kind.") as client:
        schema = {"type": "object", "required": ["city"]}
        wanted = {"instructions": "Speak Dutch.", "json": {"schema": schema}, "must_call": ["weather"]}
        text = (await client.prompt("SYSTEM", client_tools=[WEATHER], answer=wanted)).text
        assert "Be kind." in text
        assert "\n\nSpeak Dutch.\n\n" in text
        assert '{"type":"object","required":["city"]}' in text
        assert "call the tool weather" in text
        assert "Dutch" not in (await client.prompt("SYSTEM")).text


async def test_calls_that_nobody_answered_get_a_result_that_says_so() -> None:
    async with worker("--no-session") as client:
        await client.prompt(ASK, client_tools=[WEATHER])
        assert (await client.prompt("never mind")).stop_reason == "stop"
        ((_, result),) = await results_of(client)
    assert "gave no result" in result["error"]


async def test_another_worker_may_be_told_the_results(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        asked = await client.prompt(PARALLEL, client_tools=[WEATHER])
        path = (await client.call("get_state"))["session_file"]
    async with worker("--session", path) as client:
        given = {"tool_use_id": asked.calls[0]["id"], "content": "it rains"}
        assert (await client.prompt("", client_tools=[WEATHER], tool_results=[given])).text == "it rains"
        assert client.events("agent_resumed") == []
    entries = [msgspec.json.decode(line) for line in (await trio.Path(path).read_bytes()).splitlines()]
    assert [entry["record"]["client"] for entry in entries if entry.get("record", {}).get("client")] == [True]


@pytest.mark.parametrize(
    "params",
    [
        {"client_tools": [{}]},
        {"client_tools": [WEATHER, WEATHER]},
        {"client_tools": [WEATHER], "answer": {"must_call": ["read"]}},
        {"answer": {"stop": "x"}},
        {"client_tools": [WEATHER] * 200},
        {"tool_results": [{"tool_use_id": "c9", "content": "x"}]},
        {"tool_results": [{"content": "x"}]},
    ],
)
async def test_what_makes_no_sense_is_refused_and_the_next_prompt_works(params: dict[str, Any]) -> None:
    async with worker("--no-session") as client:
        assert await client.refused("prompt", text="x", **params) == "invalid_params"
        assert (await client.prompt("hello")).text == 'You said: "hello". (turn 1)'


def test_both_forms_of_a_definition_are_read() -> None:
    wrapped = {"type": "function", "function": {"name": "b"}}
    assert definitions_of([WEATHER, wrapped]) == {
        "weather": ToolDefinition("weather", "how it is", {"type": "object"}),
        "b": ToolDefinition("b", "", {"type": "object"}),
    }


def test_results_come_in_the_order_of_the_calls_and_once() -> None:
    calls = {name: ToolUseBlock(name, "t", {}) for name in ("a", "b")}
    given = [{"tool_use_id": "b", "content": 2}, {"tool_use_id": "a", "content": 1, "is_error": True}]
    assert [(block.content, block.is_error) for block in results_for(calls, given)] == [(1, True), (2, False)]
    with pytest.raises(ClientToolsError, match=r"tool_results\[2\]"):
        results_for(calls, [*given, given[0]])
