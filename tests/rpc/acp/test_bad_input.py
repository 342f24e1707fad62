"""What an agent may print besides its protocol: passed over, counted, and never taken for something else."""

import json
from typing import Any

import pytest

from errors import UsageError
from rpc.acp.dialect import AcpDialect
from rpc.acp.options import AcpOptions
from rpc.dialect import make_dialect
from rpc.settings import RpcSettings
from tests.rpc.acp.agent import CWD, JOURNALS, Agent, piece
from tests.rpc.reports import compact


def tolerated(agent: Agent) -> int:
    agent.ask("get_state")
    count: int = json.loads(bytes(agent.messages[-1].result)).get("tolerated", 0)
    return count


@pytest.mark.parametrize(
    "line", ["this is not json", "null", "[]", "42", '"text"', "{}", '{"jsonrpc":"2.0"}', '{"method":7}', '{"id":null}']
)
def test_a_line_that_is_no_message_is_contamination(line: str) -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.say(piece("a"), line, piece("b"))
    agent.end()
    assert agent.contaminated == [line.encode()]
    assert agent.reported[-1] == "c1: stop 'ab'"


def test_bytes_that_are_no_text_and_empty_lines_are_reported_apart() -> None:
    agent = Agent()
    agent.feed(b"\xff\xfe\n\n  \n\r\n")
    assert agent.contaminated == [b"\xff\xfe"]


@pytest.mark.parametrize(
    "line",
    [
        {"error": {"code": -32700, "message": "Parse error"}},
        {"id": None, "error": {"code": -32600, "message": "Invalid request"}},
        {"id": "x9", "result": {}},
        {"id": 999, "result": {}},
        {"id": True, "result": {}},
        {"id": {"a": 1}, "result": {}},
        {"id": 1.5, "error": {"code": 1, "message": "x"}},
    ],
)
def test_errors_without_an_id_and_answers_to_nothing_are_counted(line: dict[str, Any]) -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.say({"jsonrpc": "2.0", **line})
    assert agent.contaminated == []
    assert tolerated(agent) == 1
    assert agent.dialect.is_running


def test_a_second_answer_is_counted_and_changes_nothing() -> None:
    agent = Agent()
    agent.prompt("hi")
    answer = {"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {"stopReason": "end_turn"}}
    agent.say(answer)
    agent.prompt("next")
    agent.say(answer)
    assert agent.dialect.is_running
    assert tolerated(agent) == 1


def test_an_answer_that_says_nothing_is_one() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"]})
    assert agent.reported[-1] == "c1: stop ''"


@pytest.mark.parametrize(
    "params",
    [
        None,
        7,
        [],
        {},
        {"sessionId": "s1"},
        {"sessionId": 1, "update": {"sessionUpdate": "agent_message_chunk"}},
        {"sessionId": "s1", "update": "text"},
        {"sessionId": "s1", "update": {}},
        {"sessionId": "s1", "update": {"sessionUpdate": ["agent_message_chunk"]}},
        {"sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk", "content": "text"}},
        {"sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 7}}},
        {"sessionId": "s1", "update": {"sessionUpdate": "tool_call", "toolCallId": 7}},
    ],
)
def test_updates_that_make_no_sense_change_nothing(params: Any) -> None:
    agent = Agent()
    agent.prompt("hi")
    reported = list(agent.reported)
    agent.say({"jsonrpc": "2.0", "method": "session/update", "params": params})
    assert (agent.reported, agent.contaminated) == (reported, [])


def test_members_of_a_wrong_type_are_absent() -> None:
    agent = Agent()
    agent.prompt("hi")
    wrong: dict[str, Any] = {"title": 7, "kind": [], "status": {}, "content": "x", "name": None, "locations": 3}
    agent.update("tool_call", toolCallId="t1", rawInput="make", rawOutput=[1], **wrong)
    agent.update("usage_update", used="many", size=-1.5)
    agent.update("plan", entries={"content": "x"})
    agent.update("available_commands_update", availableCommands="none")
    agent.end(usage={"inputTokens": "5", "outputTokens": True, "cachedReadTokens": 10**15, "cachedWriteTokens": -1})
    assert "tool start other PENDING '\"make\"'" in agent.reported
    assert not any(line.startswith("tokens") for line in agent.reported)
    assert agent.reported[-1] == "c1: stop ''"


def test_unknown_notifications_are_passed_over() -> None:
    agent = Agent()
    agent.say({"jsonrpc": "2.0", "method": "_auth/status_update", "params": {"x": 1}})
    agent.say({"jsonrpc": "2.0", "method": "session/request_permission", "params": {}})
    assert (agent.reported, agent.sent, agent.contaminated) == ([], [], [])


def test_half_an_emoji_is_replaced() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.say(compact(piece("X")).replace("X", r"\ud83d"))
    agent.end()
    assert agent.reported[-1] == "c1: stop '\ufffd'"


def test_a_deep_update_is_contamination_and_not_the_end_of_the_supervisor() -> None:
    agent = Agent()
    agent.prompt("hi")
    deep = "[" * 100_000 + "]" * 100_000
    agent.say(compact(piece("a")), compact(piece("X")).replace('"X"', deep))
    agent.end()
    assert agent.reported[-1] == "c1: stop 'a'"


def test_lines_of_front_ends_are_not_passed_on() -> None:
    agent = Agent()
    agent.dialect.listen_raw(on=True)
    with pytest.raises(UsageError):
        agent.dialect.forward("c1", {}, 0.0)


def test_the_dialect_is_made_by_its_name() -> None:
    dialect = make_dialect(
        "acp", settings=RpcSettings(), allow_bash=False, acp=AcpOptions(cwd=CWD, journal_dir=JOURNALS)
    )
    assert isinstance(dialect, AcpDialect)
    assert dialect.name == "acp"
    with pytest.raises(UsageError, match="needs to know its directory"):
        make_dialect("acp", settings=RpcSettings(), allow_bash=False)


def test_an_answer_to_true_is_not_one_to_the_first_request() -> None:
    agent = Agent(ready=False)
    agent.say({"jsonrpc": "2.0", "id": True, "error": {"code": 1, "message": "x"}})
    assert agent.reported == []


def test_an_update_that_wants_an_answer_gets_one() -> None:
    agent = Agent()
    agent.say({**piece("x"), "id": 7}, {**piece("x"), "id": None})
    assert agent.sent == [{"jsonrpc": "2.0", "id": 7, "result": {}}]
    assert len(agent.reported) == 2
