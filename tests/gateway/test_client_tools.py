"""Tools that the sender of a message carries out: they reach the worker, its calls come back, the run is alone."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import Conflict, UsageError
from gateway.runs import registry
from gateway.turns import client_tools
from gateway.turns.client_tools import ClientTool, ToolResult, bounded_calls, check_client_tools
from profiles import AgentSettings, ProfilesSettings
from tests.gateway.world import WholeStore, World, open_world, telegram

WEATHER = {"name": "weather", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "r1.0", "name": "weather", "input": {"city": "Bonn"}}
RESULT = {"tool_use_id": "r1.0", "content": {"sky": "grey"}}

ANSWER = {"instructions": "Speak Dutch.", "must_call": ["weather"]}


def calls_end(world: World, *calls: dict[str, Any]) -> None:
    """Have the running turn end with these calls of its client's tools."""
    [worker] = [worker for worker in world.launcher.workers if worker.running is not None]
    worker.finish("", stop_reason="tool_calls", calls=list(calls))


async def test_definitions_reach_the_worker_its_calls_the_caller_and_results_the_worker(world: World) -> None:
    run = await world.begin("hang", client_tools=[WEATHER])
    calls_end(world, CALL)
    outcome = await run.wait()
    assert (outcome.status, outcome.stop_reason, outcome.reason) == ("ok", "tool_calls", "tool_calls")
    assert outcome.calls == [CALL]
    [done] = await world.events("done")
    assert (done["data"]["reason"], done["data"]["calls"]) == ("tool_calls", [CALL])
    await world.ask("", tool_results=[RESULT])
    first, second = world.launcher.asked("prompt")
    assert first["client_tools"] == [WEATHER]
    assert (second["text"], second["tool_results"]) == ("", [{**RESULT, "is_error": False}])
    assert "client_tools" not in second
    world.assert_at_rest()


async def test_tools_results_and_calls_of_a_run_outlive_a_crash(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        run = await world.begin("hang", run="k1", client_tools=[WEATHER])
        calls_end(world, CALL)
        await run.wait()
        await world.hanging()
        await world.begin("next", client_tools=[WEATHER], tool_results=[RESULT], answer=ANSWER)
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        await wait_all_tasks_blocked()
        [prompt] = world.launcher.asked("prompt")
        assert (prompt["client_tools"], prompt["tool_results"]) == ([WEATHER], [{**RESULT, "is_error": False}])
        assert prompt["answer"] == ANSWER
        assert (await world.call("agent.wait", run_id="k1", timeout_ms=0))["calls"] == [CALL]


async def test_calls_too_long_for_one_event_are_in_the_outcome_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_DONE_CALLS", len(msgspec.json.encode(CALL)))
    run = await world.begin("hang", client_tools=[WEATHER])
    calls_end(world, CALL, {**CALL, "id": "r1.1"})
    assert len((await run.wait()).calls) == 2
    [done] = await world.events("done")
    assert (done["data"]["calls"], done["data"]["truncated"]) == ([CALL], True)


@pytest.mark.parametrize("more", [{"client_tools": [WEATHER]}, {"tool_results": [RESULT]}])
@pytest.mark.parametrize("mode", ["steer", "collect"])
async def test_a_run_with_tools_or_results_is_neither_steered_nor_merged(
    world: World, mode: str, more: dict[str, Any]
) -> None:
    worker = await world.hanging()
    runs = [await world.begin(text, queue=mode, **extra) for text, extra in (("one", more), ("two", more))]
    assert worker.steers == []
    worker.finish()
    for run in runs:
        await run.wait()
    assert [prompt["text"] for prompt in world.launcher.asked("prompt")] == ["hang", "one", "two"]


async def test_the_same_key_with_other_tools_or_results_is_a_conflict(world: World) -> None:
    await world.send("hello", run="k1", client_tools=[WEATHER], tool_results=[RESULT])
    await world.send("hello", run="k1", client_tools=[WEATHER], tool_results=[RESULT])
    others: list[dict[str, Any]] = [
        {"client_tools": [WEATHER]},
        {"client_tools": [WEATHER], "tool_results": [RESULT], "answer": ANSWER},
        {"tool_results": [RESULT]},
        {"client_tools": [{**WEATHER, "description": "Other."}], "tool_results": [RESULT]},
        {"client_tools": [WEATHER], "tool_results": [{**RESULT, "content": "blue"}]},
    ]
    for other in others:
        with pytest.raises(Conflict):
            await world.send("hello", run="k1", **other)


async def test_results_that_a_channel_hands_over_are_not_taken_for_the_same_message_twice(world: World) -> None:
    bodies: list[dict[str, Any]] = [
        {"tool_results": [{**RESULT, "content": words}]} for words in ("grey", "blue", "grey")
    ]
    runs = [await world.send("", source=telegram(), **body) for body in bodies]
    assert runs[0].request.run_id != runs[1].request.run_id
    assert runs[2].request.run_id == runs[0].request.run_id


# --- what is refused --------------------------------------------------------------------------------------------------

PROFILES = ProfilesSettings(agents={"p": AgentSettings(dialect="pi")})


@pytest.mark.parametrize("more", [{"client_tools": [WEATHER]}, {"tool_results": [RESULT]}])
@pytest.mark.world(profiles=PROFILES)
async def test_an_agent_that_speaks_pi_is_not_even_asked(world: World, more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="agent 'p' takes no tools from its client"):
        await world.send("hello", agent="p", **more)
    assert (world.launcher.requests, world.gateway.run_registry.live, len(world.gateway.sessions)) == ([], 0, 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"client_tools": [WEATHER, WEATHER]}, "client_tools: there are two of the tool 'weather'"),
        ({"tool_results": [RESULT, RESULT]}, "tool_results: there are two of the result of the call 'r1.0'"),
        ({"answer": {"must_call": ["weather"]}}, "answer.must_call: there is no 'weather' among client_tools"),
        ({"answer": {"stop": ["a", ""]}}, "answer.stop: at most 4 texts, none of them empty"),
        ({"answer": {"stop": ["a"] * 5}}, "answer.stop: at most 4"),
        ({"answer": {"json": {"schema": {"x": "y" * 600_000}}}}, "answer: 600,0.. bytes, more than"),
        ({"client_tools": [{"name": ""}]}, r"`\$.client_tools\[0\].name`"),
        ({"client_tools": [{"name": "a", "strict": True}]}, "unknown field `strict`"),
        ({"client_tools": [{"name": "a", "parameters": []}]}, "Expected `object`, got `array`"),
        ({"tool_results": [{"tool_use_id": "a"}]}, "missing required field `content`"),
        ({"client_tools": [{"name": f"t{number}"} for number in range(129)]}, "of length <= 128"),
        ({"tool_results": [{"tool_use_id": f"c{n}", "content": 1} for n in range(257)]}, "of length <= 256"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_kept(
    world: World, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        await world.send("hello", **more)
    assert (world.gateway.run_registry.live, len(world.gateway.sessions)) == (0, 0)


async def test_a_slash_command_answers_no_call_and_needs_no_tool(world: World) -> None:
    with pytest.raises(UsageError, match="takes no tool results"):
        await world.send("/status", tool_results=[RESULT])
    assert "Session alice" in (await world.ask("/status", client_tools=[WEATHER])).text
    with pytest.raises(UsageError, match="the message is empty"):
        await world.send(" ", client_tools=[WEATHER])


def test_definitions_and_results_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [ClientTool(name="a", description="x" * 100)]
    results = [ToolResult(tool_use_id="a", content="x" * 100)]
    check_client_tools(tools, results)
    for name, words in (
        ("_MAX_TOOLS_BYTES", r"client_tools: 1\d\d bytes, more than 99"),
        ("_MAX_RESULTS_BYTES", "tool_results: "),
    ):
        with monkeypatch.context() as context:
            context.setattr(client_tools, name, 99)
            with pytest.raises(UsageError, match=words):
                check_client_tools(tools, results)


def test_of_calls_the_first_ones_that_fit_are_kept() -> None:
    size = len(msgspec.json.encode(CALL))
    assert bounded_calls([CALL, CALL, CALL], 2 * size) == [CALL, CALL]
    assert bounded_calls([{**CALL, "input": "x" * size}, CALL], size) == []
    assert bounded_calls([], 0) == []
