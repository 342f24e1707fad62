"""Tools of the client: the run ends with their calls, the next prompt, to any worker, brings the results."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agent.client_tools import ClientToolsError, definitions_of, results_for
from agent.models.base import ToolDefinition
from tests.agent.inprocess import worker
from wire.entries import ToolUseBlock

WEATHER: dict[str, Any] = {"name": "weather", "description": "how it is", "parameters": {"type": "object"}}
ASK = 'TOOL:weather {"where":"here"} then TELL'
PARALLEL = 'PARALLEL TOOL:read {"path":"none"} TOOL:weather {"where":"here"} TELL'


def given(call: dict[str, Any], content: Any) -> dict[str, Any]:
    return {"tool_results": [{"tool_use_id": call["id"], "content": content}]}


async def test_a_run_ends_with_the_calls_and_the_next_prompt_goes_on_with_their_results() -> None:
    async with worker("--no-session") as client:
        asked = await client.prompt(ASK, client_tools=[WEATHER])
        (call,) = asked.calls
        assert (asked.stop_reason, call["name"], call["input"]) == ("tool_calls", "weather", {"where": "here"})
        told = await client.prompt("", client_tools=[WEATHER], **given(call, "it rains"))
        assert (told.stop_reason, told.text, told.calls) == ("stop", "it rains", [])
        # Calls that have no answer get a result that says so.
        await client.prompt(ASK, client_tools=[WEATHER])
        assert (await client.prompt("never mind")).stop_reason == "stop"
        assert "gave no result" in (await client.results())[-1]["error"]


async def test_a_client_tool_takes_the_place_of_the_agents_own_of_that_name_for_its_run(workspace: Path) -> None:
    (workspace / "a.txt").write_text("the worker's own file")
    ask = 'TOOL:read {"path":"a.txt"} TELL'
    async with worker() as client:
        (call,) = (await client.prompt(ask, client_tools=[{**WEATHER, "name": "read"}])).calls
        assert (await client.prompt("", **given(call, "the client's file"))).text == "the client's file"
        assert "the worker's own file" in (await client.prompt(ask)).text


async def test_what_an_answer_is_to_be_is_told_to_a_model_that_takes_no_such_parameter_for_one_run() -> None:
    async with worker("--no-session", "--append-system-prompt", "Be kind.") as client:
        schema = {"type": "object", "required": ["city"]}
        wanted = {"instructions": "Speak Dutch.", "json": {"schema": schema}, "must_call": ["weather"]}
        text = (await client.prompt("SYSTEM", client_tools=[WEATHER], answer=wanted)).text
        for words in (
            "Be kind.",
            "\n\nSpeak Dutch.\n\n",
            msgspec.json.encode(schema).decode(),
            "call the tool weather",
        ):
            assert words in text
        assert "Dutch" not in (await client.prompt("SYSTEM")).text


async def test_another_worker_may_be_told_the_results(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        asked = await client.prompt(PARALLEL, client_tools=[WEATHER])
        assert [call["name"] for call in asked.calls] == ["weather"]
        assert [result["error_type"] for result in await client.results()] == ["runtime"]  # the agent's own came first
        path = (await client.call("get_state"))["session_file"]
    async with worker("--session", path) as client:
        result = given(asked.calls[0], {"rain": True})
        assert (await client.prompt("", client_tools=[WEATHER], **result)).text == '{"rain":true}'
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


def test_both_forms_of_a_definition_are_read_and_results_come_in_the_order_of_the_calls_and_once() -> None:
    assert definitions_of([WEATHER, {"type": "function", "function": {"name": "b"}}]) == {
        "weather": ToolDefinition("weather", "how it is", {"type": "object"}),
        "b": ToolDefinition("b", "", {"type": "object"}),
    }
    calls = {name: ToolUseBlock(name, "t", {}) for name in ("a", "b")}
    results = [{"tool_use_id": "b", "content": 2}, {"tool_use_id": "a", "content": 1, "is_error": True}]
    assert [(block.content, block.is_error) for block in results_for(calls, results)] == [(1, True), (2, False)]
    with pytest.raises(ClientToolsError, match=r"tool_results\[2\]"):
        results_for(calls, [*results, results[0]])
