"""Conversations that an agent is to go on with: its replay as proof, what is fed again, resumes, deadlines."""

import json
from typing import Any

import pytest

from errors import ProtocolViolation
from tests.rpc.acp.agent import CWD, Agent, journal_lines, piece, update, user_message
from tests.rpc.acp.conversations import FACTS, PLACE, TAIL, end_of_turn, loading, methods, strategy, turn


def test_a_replay_is_swallowed_and_proves_the_conversation() -> None:
    agent = loading()
    assert agent.pop("session/load")["params"] == {"sessionId": "old", **PLACE}
    agent.say(
        user_message("remember apple"),
        piece("I do", session="old"),
        update("tool_call", session="old", toolCallId="t", title="x", status="completed"),
        user_message(" and  pear\n"),
        piece("yes", session="old", kind="agent_thought_chunk"),
    )
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": None})
    assert agent.reported == ['agent_resumed {"strategy": "loaded"}', "c1: holds /journals/old.jsonl"]
    turn(agent, "third")
    assert journal_lines(agent.journal) == ["user: third", "assistant: ok (stop)"], "its header is there"
    agent.switch("old", **{**FACTS, "turns": 3})
    assert agent.reported[-2] == 'agent_resumed {"strategy": "kept"}'


@pytest.mark.parametrize("chunks", [["and ", "pear"], ["and pear", "[image]"]])
def test_the_pieces_of_a_replayed_message_belong_together(chunks: list[str]) -> None:
    agent = loading()
    agent.say(*(user_message(chunk, messageId="m1") for chunk in chunks))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_what_was_sent_around_a_text_is_no_other_text() -> None:
    agent = Agent(instructions="Be brief.")
    agent.switch("old", turns=1, last_user_text="hi", tail="user:hi")
    agent.answer("session/close")
    agent.say(user_message("Be brief.hiAbout the answer to this message: use JSON"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


@pytest.mark.parametrize(
    "replayed", [[], ["remember apple"], ["remember apple", "[Request interrupted by user]"], ["<command>"]]
)
def test_less_than_the_transcript_is_fed_again(replayed: list[str]) -> None:
    agent = loading()
    agent.say(*(user_message(text) for text in replayed), piece("I do", session="old"))
    agent.answer("session/load")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "less"}
    assert agent.reported[-1] == "c1: holds /journals/old.jsonl", "the transcript stays the same"


@pytest.mark.parametrize(
    "replayed",
    [
        ["something else"],
        ["remember apple", "something else"],
        ["remember apple", "and pear", "something else"],
        ["look: and pear or what"],
    ],
)
def test_text_that_is_not_the_transcripts_ends_the_worker(replayed: list[str]) -> None:
    agent = loading(tail="user:remember apple\nuser:and pear", last_user_text="and pear")
    agent.say(*(line for text in replayed for line in (user_message(text), piece("x", session="old"))))
    if replayed[0].startswith("look"):  # a part of it may be anything: not proof enough for either
        agent.answer("session/load")
        agent.answer("session/close")
        assert methods(agent)[-1] == "session/new"
        return
    with pytest.raises(ProtocolViolation, match="another conversation"):
        agent.answer("session/load")


def test_what_the_agent_adds_after_an_interruption_is_its_own() -> None:
    agent = loading()
    agent.say(user_message("and pear"), piece("x", session="old"), user_message("[Request interrupted by user]"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_an_error_becomes_a_new_conversation_that_is_reported_the_end_of_the_old_one() -> None:
    agent = loading()
    agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "error"}
    agent.prompt("what did I say?")
    earlier, text = agent.sent[-1]["params"]["prompt"]
    assert text == {"type": "text", "text": "what did I say?"}
    assert earlier["type"] == "resource"
    assert earlier["resource"]["text"].splitlines()[0].startswith("[Earlier talk")
    assert earlier["resource"]["text"].endswith(f"{TAIL}\n\n")
    assert journal_lines(agent.journal) == [f"[s2 in {CWD}] user: what did I say?"]
    assert end_of_turn(agent).get("strategy") == "refed"
    agent.prompt("again")
    assert len(agent.sent[-1]["params"]["prompt"]) == 1, "once"
    assert "strategy" not in end_of_turn(agent)
    agent.switch("s2", **{**FACTS, "turns": 4})
    assert agent.reported[-2] == 'agent_resumed {"strategy": "kept"}', "its turns go on"


def test_it_is_reported_again_where_the_prompt_failed() -> None:
    agent = loading()
    agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("what?")
    agent.refuse("session/prompt", -32603, "overloaded")
    agent.prompt("what?")
    assert len(agent.sent[-1]["params"]["prompt"]) == 2


def test_at_most_64_KiB_are_reported_in_a_text_where_the_agent_takes_no_resources() -> None:  # noqa: N802 - a unit
    agent = Agent(abilities={"loadSession": False})
    agent.switch("old", **{**FACTS, "tail": "\u00e9" * 65_536 + "end"})
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "unsupported"}
    agent.prompt("hi")
    earlier = agent.sent[-1]["params"]["prompt"][0]
    assert earlier["type"] == "text"
    first_line, talk = earlier["text"].split("\n", 1)
    assert first_line.startswith("[Earlier talk")
    assert 65_000 < len(talk.encode()) <= 65_536
    assert talk.endswith("end\n\n")


def test_a_login_that_is_missing_is_no_lost_conversation() -> None:
    agent = loading()
    agent.refuse("session/load", -32000, "Authentication required")
    assert agent.reported[-1] == "c1: error auth_required"
    assert "session/new" not in methods(agent)


# --- resume without a replay ---


@pytest.mark.parametrize(
    ("honest", "closed_cleanly", "method"),
    [(True, True, "resume"), (True, False, "load"), (False, True, "load"), (False, False, "load")],
)
def test_only_an_honest_agent_whose_last_process_ended_well_resumes(
    *, honest: bool, closed_cleanly: bool, method: str
) -> None:
    agent = Agent(honest=honest)
    agent.switch("old", **FACTS, closed_cleanly=closed_cleanly)
    agent.answer("session/close")
    assert agent.pop(f"session/{method}")["params"] == {"sessionId": "old", **PLACE}


def resuming() -> Agent:
    agent = Agent(honest=True)
    agent.switch("old", **FACTS, closed_cleanly=True)
    agent.answer("session/close")
    return agent


def test_a_resumed_conversation_needs_no_replay() -> None:
    agent = resuming()
    agent.answer("session/resume")
    assert strategy(agent) == {"strategy": "resumed"}


@pytest.mark.parametrize("result", [{"sessionId": "fresh"}, {}])
def test_a_resume_that_gives_another_conversation_is_none(result: dict[str, Any]) -> None:
    agent = resuming()
    if not result:
        agent.say(user_message("remember apple"))  # some replay all the same
    agent.answer("session/resume", result)
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "less"}


def test_whether_an_agent_refuses_unknown_ids_can_be_tried_out() -> None:
    agent = Agent()
    agent.ask("probe_resume", session_id="unknown")
    agent.refuse("session/resume", -32002, "Resource not found")
    assert agent.reported[-1] == 'c1: {"honest": true}'
    agent.ask("probe_resume", session_id="unknown")
    agent.say(user_message("x", session="unknown"))
    agent.answer("session/resume")
    agent.answer("session/close")
    assert agent.reported[-1] == 'c2: {"honest": false}'
    turn(agent)
    assert agent.reported[-1] == "c3: stop 'ok'"


# --- time ---


def test_the_deadline_of_a_load_moves_with_each_line() -> None:
    agent = loading()
    for _ in range(3):
        agent.wait(29)
        agent.say(user_message("and pear"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_a_load_without_a_line_is_no_answer_and_no_new_conversation() -> None:
    agent = loading()
    agent.wait(29.9)
    assert agent.reported == []
    agent.wait(0.2)
    assert agent.reported == ["c1: error timeout"]
    assert agent.dialect.retire_reason is not None
    assert "session/new" not in methods(agent)
    agent.say(user_message("late"), {"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert agent.reported == ["c1: error timeout"]
    agent.switch("old", **FACTS)
    agent.refuse("session/close", -32603, "unknown")
    assert agent.reported[-1] == "c2: error stale", "it may be open: it is not loaded again"


def test_a_load_takes_120_seconds_at_most() -> None:
    agent = loading()
    for _ in range(11):
        agent.wait(10)
        agent.say(user_message("and pear"))
    agent.wait(9.9)
    assert agent.reported == []
    agent.wait(0.2)
    assert agent.reported == ["c1: error timeout"]


def test_what_an_agent_says_of_the_state_while_it_loads_applies_once_it_has_loaded() -> None:
    agent = loading()
    for title in ("old title", "title"):
        agent.update("session_info_update", session="old", title=title)
    agent.update("available_commands_update", session="old", availableCommands=[{"name": "help"}])
    agent.update("usage_update", session="old", used=7, size=10)
    agent.say(user_message("and pear"))
    assert agent.reported == []
    agent.answer("session/load")
    assert agent.reported[0] == 'state_changed {"session_name": "title"}'
    agent.ask("get_commands")
    assert agent.reported[-1] == 'c2: {"commands": [{"name": "help"}]}'
    agent.ask("get_state")
    assert json.loads(bytes(agent.messages[-1].result))["context_used"] == 7


@pytest.mark.parametrize(("last_replayed", "is_foreign"), [("in the tail", False), ("something else", True)])
def test_of_a_conversation_longer_than_its_tail_only_the_last_message_is_judged(
    last_replayed: str,
    is_foreign: bool,  # noqa: FBT001 - parametrized
) -> None:
    agent = loading(tail=f"user:in the tail\nassistant:{'x' * 65_000}\nuser:and pear")
    for text in ("long ago", last_replayed):
        agent.say(user_message(text), piece("yes", session="old"))
    if is_foreign:
        with pytest.raises(ProtocolViolation):
            agent.answer("session/load")
    else:
        agent.answer("session/load")
        assert methods(agent)[-1] == "session/close", "less than the transcript"
