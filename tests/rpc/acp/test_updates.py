"""What each update of an ACP agent becomes in a turn."""

import json
from typing import Any

import pytest

from rpc.dialect import ConversationFacts
from tests.rpc.acp.agent import Agent, piece, user_message
from tests.rpc.acp.conversations import loading
from wire.messages import ContextSize


def test_thoughts_and_blocks_that_are_no_text(busy: Agent) -> None:
    busy.say(piece("hm", kind="agent_thought_chunk"), piece("m", kind="agent_thought_chunk"))
    for content in (
        {"type": "image", "data": "AAAA"},
        {"type": "audio", "data": "AAAA"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "x"}},
    ):
        busy.update("agent_message_chunk", content=content)
    assert busy.reported == ["thinking hmm", "assistant_message [image][audio][resource file:///a][resource file:///b]"]


def test_what_the_agent_repeats_of_the_user_is_passed_over(busy: Agent) -> None:
    busy.update("user_message_chunk", content={"type": "text", "text": "hi"})
    assert busy.reported == []


def test_pieces_of_a_block_are_one_event_between_other_events(busy: Agent) -> None:
    before = len(busy.events)
    busy.say(piece("a"), piece("b"), piece("t", kind="agent_thought_chunk"), piece("c"), piece("d"))
    assert [data["partial"] for _, data in busy.events[before:]] == ["ab", "t", "cd"]


def test_a_call_from_its_start_to_its_result(busy: Agent) -> None:
    busy.update("tool_call", toolCallId="t1", name="Bash", kind="execute", title="Run", status="pending")
    busy.update("tool_call_update", toolCallId="t1", title="make", rawInput={"command": "make"})
    text = {"type": "content", "content": {"type": "text", "text": "one\ntwo"}}
    busy.update("tool_call_update", toolCallId="t1", status="in_progress", content=[text])
    busy.update("tool_call_update", toolCallId="t1", status="in_progress", content=[text])
    diff = {"type": "diff", "path": "/a.txt", "oldText": None, "newText": "x"}
    busy.update("tool_call_update", toolCallId="t1", status="completed", content=[text, diff])
    assert busy.reported == [
        "tool start Bash PENDING 'Run'",
        "tool update Bash PENDING 'make'",
        "tool update Bash RUNNING 'make' 'one\\ntwo'",
        'file_changed {"path": "/a.txt"}',
        "tool_executed Bash COMPLETED",
        "tool end Bash COMPLETED 'make' 'one\\ntwo\\n[diff /a.txt]'",
    ]


def test_content_replaces_what_was_there(busy: Agent) -> None:
    busy.update("tool_call", toolCallId="t1", title="x", content=[{"type": "diff", "path": "/a", "newText": "x"}])
    busy.update("tool_call_update", toolCallId="t1", status="completed", content=[])
    assert busy.reported[-1] == "tool end other COMPLETED 'x'"
    assert not any(line.startswith("file_changed") for line in busy.reported)


def test_a_call_that_fails(busy: Agent) -> None:
    busy.update("tool_call", toolCallId="t1", kind="fetch", title="get", status="in_progress")
    busy.update("tool_call_update", toolCallId="t1", status="failed", rawOutput="no route")
    assert busy.reported == [
        "tool start fetch RUNNING 'get'",
        "tool error fetch FAILED 'get' 'no route'",
        "tool_executed fetch FAILED",
        "tool end fetch FAILED 'get' 'no route'",
    ]


def test_an_update_of_an_unknown_call_is_its_start(busy: Agent) -> None:
    busy.update("tool_call_update", toolCallId="t9", rawInput={"path": "/a"}, status="in_progress")
    assert busy.reported == ['tool start other RUNNING \'{"path":"/a"}\'']


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({"rawOutput": "plain"}, "plain"),
        ({"rawOutput": {"output": "in an object"}}, "in an object"),
        ({"_meta": {"terminal_output": {"data": "of a terminal"}}}, "of a terminal"),
        ({"content": [{"type": "terminal", "terminalId": "x"}], "rawOutput": "beside one"}, "beside one"),
    ],
)
def test_the_output_of_a_call_may_lie_elsewhere(busy: Agent, members: dict[str, Any], output: str) -> None:
    busy.update("tool_call", toolCallId="t1", title="x", status="completed", **members)
    assert busy.reported[-1] == f"tool end other COMPLETED 'x' {output!r}"


def test_calls_that_are_open_at_the_end_have_no_result(busy: Agent) -> None:
    busy.update("tool_call", toolCallId="t1", title="x", status="in_progress")
    busy.end()
    assert busy.reported[1:] == [
        "tool error other FAILED 'x' 'no result'",
        "tool_executed other FAILED",
        "tool end other FAILED 'x' 'no result'",
        "done stop",
        "c1: stop ''",
    ]
    reported = list(busy.reported)
    busy.update("tool_call_update", toolCallId="t1", status="completed")
    assert busy.reported == reported, "late"


def cost_of_turn(agent: Agent, *sums: Any, currency: str = "USD") -> float | None:
    """Of a turn in which the agent tells these sums."""
    agent.prompt("hi")
    for amount in sums:
        session = agent.sent[-1]["params"]["sessionId"]
        agent.update("usage_update", session=session, used=1, size=9, cost={"amount": amount, "currency": currency})
    agent.end()
    cost: float | None = json.loads(bytes(agent.messages[-1].result))["usage"].get("cost")
    told = [data["cost"] for event, data in agent.events if event == "token_usage"]
    assert told == ([] if cost is None else [cost])
    agent.events.clear()
    return cost


def test_the_cost_of_a_turn_is_what_the_sum_of_the_conversation_has_grown_by(agent: Agent) -> None:
    assert cost_of_turn(agent, 0.05034, 0.0969) == 0.0969
    assert cost_of_turn(agent) is None, "nothing was told of it"
    assert cost_of_turn(agent, 0.14766400000000002) == 0.050764
    agent.update("usage_update", used=1, size=9, cost={"amount": 0.15, "currency": "USD"})  # late
    assert cost_of_turn(agent, 0.2) == 0.052336
    assert cost_of_turn(agent, 0.1) is None, "it counts from the beginning again"
    assert cost_of_turn(agent, 0.4) == 0.3


@pytest.mark.parametrize("told", ["1", True, -1, 10**400, None, []])
def test_a_cost_that_is_none_in_dollars_is_no_cost(agent: Agent, told: Any) -> None:
    assert cost_of_turn(agent, told) is None
    assert cost_of_turn(agent, 0.5, currency="EUR") is None


def test_what_a_loaded_conversation_had_cost_is_charged_to_no_turn() -> None:
    for told_before in (None, 0.4):
        agent = loading()
        if told_before is not None:
            cost = {"amount": told_before, "currency": "USD"}
            agent.update("usage_update", session="old", used=1, size=9, cost=cost)
        agent.say(user_message("and pear"))
        agent.answer("session/load")
        assert cost_of_turn(agent, 0.5) == (None if told_before is None else 0.1)
        assert cost_of_turn(agent, 0.7) == 0.2


def test_a_plan_is_the_whole_list_of_what_is_to_do(busy: Agent) -> None:
    entries = [{"content": "a", "priority": "high", "status": "in_progress"}, {"content": "b", "status": "odd"}, 7]
    busy.update("plan", entries=entries)
    todos = [{"id": "1", "status": "in_progress", "text": "a"}, {"id": "2", "status": "pending", "text": "b"}]
    assert busy.reported == ["todo_changed " + json.dumps({"todos": todos})]


def test_the_context_and_the_turns_are_part_of_the_state(busy: Agent) -> None:
    busy.update("usage_update", used=120, size=1000, cost={"amount": 1})
    busy.end()
    busy.ask("get_state")
    state = json.loads(bytes(busy.messages[-1].result))
    assert (state["context"], state["message_count"]) == ({"used": 120, "size": 1000}, 2)
    assert (state["session_id"], state["session_file"]) == ("s1", "/journals/s1.jsonl")
    assert busy.dialect.conversation_facts == ConversationFacts(context=ContextSize(120, 1000))


def test_a_context_of_another_size_is_told_in_the_turn_or_at_the_start_of_the_next_one(busy: Agent) -> None:
    for used in (120, 120, "many", -1, 10**30, 130):
        busy.update("usage_update", used=used, size=1000)
    told = [f'context_usage {{"size": 1000, "used": {used}}}' for used in (120, 130)]
    assert busy.reported == told
    busy.end()
    busy.update("usage_update", used=140, size=1000)
    busy.reported.clear()
    for _ in range(2):
        busy.prompt("more")
        busy.end()
    assert busy.reported.count('context_usage {"size": 1000, "used": 140}') == 1
    assert busy.reported[1].startswith("context_usage")


def test_a_compaction_has_a_start_and_an_end(busy: Agent) -> None:
    for status in ("in_progress", "_odd", "cancelled", "failed"):
        busy.update("compaction_update", compactionId="k", status=status, error="e" if status == "failed" else None)
    assert busy.reported == [
        'compaction {"phase": "start"}',
        'compaction {"aborted": true, "phase": "end"}',
        'compaction {"error": "e", "phase": "end"}',
    ]


def test_notices_titles_and_commands(busy: Agent) -> None:
    busy.update("notice", severity="warning", title="Low", description="on disk")
    busy.update("notice", severity="_own", title="Hello")
    busy.update("session_info_update", title="Fix it")
    busy.update("session_info_update", title="Fix it")
    busy.update("available_commands_update", availableCommands=[{"name": "help"}, 3])
    busy.update("some_later_kind", x=1)
    assert busy.reported == [
        'error {"code": "notice", "message": "Low: on disk", "severity": "warn"}',
        'error {"code": "notice", "message": "Hello", "severity": "info"}',
        'state_changed {"session_name": "Fix it"}',
    ]
    busy.ask("get_commands")
    assert busy.reported[-1] == 'c2: {"commands": [{"name": "help"}]}'


def test_empty_pieces_are_nothing_however_they_arrive(agent: Agent) -> None:
    for lines in ([piece("")] * 3, [piece(""), piece("", kind="agent_thought_chunk")]):
        agent.prompt("hi")
        agent.say(*lines)
        agent.end()
    assert [data["code"] for event, data in agent.events if event == "error"] == ["empty_turn"] * 2
    assert not any(line.startswith(("assistant_message", "thinking")) for line in agent.reported)


def test_pieces_of_another_conversation_in_a_block_of_pieces_are_not_this_ones(busy: Agent) -> None:
    busy.say(piece("a"), piece("x", session="other"), piece("b"))
    busy.end()
    assert busy.reported[-1] == "c1: stop 'ab'"
