"""A conversation that an agent no longer has, though it had it a moment ago: what fails, and what takes it up again."""

import json

import pytest

from rpc.acp.loss import Loss, loss_of
from tests.rpc.acp.agent import Agent, journal_lines, piece, user_message
from tests.rpc.acp.conversations import methods, strategy, turn


def lost(*, turns: int = 1) -> Agent:
    """An agent that has lost its conversation, of as many turns, and has refused a prompt for that."""
    agent = Agent()
    for _ in range(turns):
        turn(agent)
    agent.prompt("again")
    agent.refuse("session/prompt", -32002, "Resource not found: s1")
    return agent


def is_lost(agent: Agent) -> bool:
    """What the pool receives."""
    return agent.dialect.has_lost_conversation


def test_a_prompt_of_a_lost_conversation_fails_once_and_the_next_one_follows_a_load() -> None:
    agent = lost()
    result = json.loads(bytes(agent.messages[-1].result))
    assert result["stop_reason"] == "error"
    words = "the agent has lost the conversation, which the next message takes up again: Resource not found: s1"
    assert result["error"].startswith(words)
    assert is_lost(agent)
    agent.prompt("too early")
    assert agent.reported[-1].endswith("error no_session")
    assert journal_lines(agent.journal)[1:] == ["assistant: ok (stop)", "user: again", "<withdrawn>", "<lost>"]
    agent.sent.clear()
    agent.switch("s1", turns=1, last_user_text="hi", tail="user:hi", honest=True)
    agent.answer("session/close")
    agent.say(user_message("hi", session="s1"))
    agent.answer("session/load")
    assert methods(agent) == ["session/close", "session/load"], "a resume would prove nothing"
    assert strategy(agent) == {"strategy": "loaded"}
    assert not is_lost(agent)
    turn(agent)
    assert journal_lines(agent.journal)[-2:] == ["user: hi", "assistant: ok (stop)"]


def test_a_process_that_cannot_load_what_it_has_lost_is_no_proof_that_it_is_lost_for_good() -> None:
    agent = lost()
    agent.switch("s1", turns=1, last_user_text="hi", tail="user:hi")
    agent.refuse("session/close", -32603, "no such")
    agent.refuse("session/load", -32603, "the server is gone")
    assert agent.reported[-1].endswith("error stale"), "another process is asked"
    assert "session/new" not in methods(agent)[2:]


def test_what_it_has_lost_before_a_turn_had_ended_is_begun_again() -> None:
    agent = lost(turns=0)
    agent.switch("s1", turns=0)
    agent.answer("session/new", {"sessionId": "s2"})
    assert agent.reported[-1].endswith("holds /journals/s1.jsonl")
    assert not is_lost(agent)


def test_a_setting_that_is_refused_for_that_loses_it_too() -> None:
    agent = Agent(ready=False)
    agent.start(modes={"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "auto"}]})
    turn(agent)
    agent.ask("set_mode", mode="auto")
    agent.refuse("session/set_mode", -32603, "Internal error", {"details": "Unknown session s1"})
    assert is_lost(agent)
    assert journal_lines(agent.journal)[-1] == "<lost>"


@pytest.mark.parametrize("refused", [False, True])
def test_a_prompt_that_may_have_been_read_stays_in_the_transcript(*, refused: bool) -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.say(piece("I"))
    code, words = (-32002, "Resource not found") if refused else (-32603, "The process exited. Begin another session.")
    agent.refuse("session/prompt", code, words)
    assert journal_lines(agent.journal)[1:] == ["assistant: I (error)", "<lost>"]
    assert is_lost(agent)


def test_other_refusals_lose_nothing() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.refuse("session/prompt", -32603, "the model is overloaded")
    assert not is_lost(agent)
    agent.prompt("again")
    assert agent.sent[-1]["params"]["sessionId"] == "s1"


@pytest.mark.parametrize(
    ("code", "words", "loss"),
    [
        (-32002, "Resource not found", Loss.UNKNOWN),
        (-32002, "Session nope not found", Loss.UNKNOWN),
        (-32602, "Session not found: nope", Loss.UNKNOWN),
        (-32602, "Invalid params: Unknown sessionId: nope", Loss.UNKNOWN),
        (-32603, "Internal error: no rollout found for thread id 0: thread 0 not found", Loss.UNKNOWN),
        (-32603, "The Claude Agent process exited unexpectedly. Please start a new session.", Loss.ENDED),
        (-32603, "Internal error: The Claude Agent session has ended. Please start a new session.", Loss.ENDED),
        (-32603, "Internal error: 500 the server had an error while processing your request", None),
        (-32602, "model not found: fake-9", None),
        (-32603, "x" * 2_000 + "unknown session", None),
        (-32000, "Unknown session", None),
        (None, "process exited", None),
    ],
)
def test_what_agents_say_of_a_lost_conversation(code: int | None, words: str, loss: Loss | None) -> None:
    assert loss_of(code, words) is loss
