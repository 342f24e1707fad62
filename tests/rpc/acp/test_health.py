"""Whether an ACP agent is alive, as ``ping`` finds out."""

import pytest

from tests.rpc.acp.agent import INITIALIZED, Agent


def starting() -> Agent:
    """An agent that has just become ready."""
    agent = Agent(ready=False)
    agent.answer("initialize", INITIALIZED)
    agent.answer("session/new", {"sessionId": "s1"})
    agent.reported.clear()
    return agent


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": -32601, "message": "no"}}, {"result": None}])
def test_any_answer_to_an_unknown_request_is_a_sign_of_life(answer: dict[str, object]) -> None:
    agent = Agent()
    agent.ask("ping")
    assert agent.reported == []
    [line] = agent.sent
    assert (line["method"], line["params"]) == ("_pool/ping", {})
    agent.say({"jsonrpc": "2.0", "id": line["id"], **answer})
    assert agent.reported == ["c1: {}"]


def test_it_is_tried_out_once_the_agent_is_ready() -> None:
    agent = starting()
    assert [line["method"] for line in agent.sent] == ["initialize", "session/new", "_pool/ping"]


def test_an_agent_that_was_silent_for_two_seconds_is_not_asked_again() -> None:
    agent = starting()
    agent.wait(1.9)
    agent.ask("ping")
    assert agent.reported == []
    agent.wait(0.2)
    sent = len(agent.sent)
    agent.ask("ping")
    assert agent.reported == ["c2: {}"], "its process lives"
    assert len(agent.sent) == sent


def test_a_ping_is_answered_in_a_turn() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.ask("ping")
    agent.refuse("_pool/ping", -32601, "no")
    assert agent.reported[-1] == "c2: {}"
    assert agent.dialect.is_running
