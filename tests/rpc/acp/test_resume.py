"""Conversations that an agent is to go on with: its replay as proof, what is fed again, resumes, deadlines."""

import json
import re
from typing import Any

import pytest

from errors import ProtocolViolation
from rpc.acp.conversation import MAX_REPLAY, Replay, ReplayVerdict, unknown_id
from rpc.acp.options import JournalFacts
from tests.rpc.acp.agent import CWD, JOURNALS, Agent, journal_lines, piece, update, user_message
from tests.rpc.acp.conversations import FACTS, PLACE, TAIL, end_of_turn, loading, methods, strategy, turn

NONCE = "0123456789abcdef0123456789abcdef"


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
    assert journal_lines(agent.journal) == ["<opened>", "user: third", "assistant: ok (stop)"], "its header is there"
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
    assert strategy(agent) == {"strategy": "refed", "cause": "error", "error": "Resource not found (-32002)"}
    agent.prompt("what did I say?")
    earlier, text = agent.sent[-1]["params"]["prompt"]
    assert text == {"type": "text", "text": "what did I say?"}
    assert earlier["type"] == "resource"
    assert earlier["resource"]["text"].splitlines()[0].startswith("[Earlier talk")
    assert earlier["resource"]["text"].endswith(f"{TAIL}\n\n")
    assert journal_lines(agent.journal) == ["<opened>", f"[s2 in {CWD}] user: what did I say?"]
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
    agent = Agent()
    agent.switch("old", **FACTS, closed_cleanly=closed_cleanly, honest=honest)
    agent.answer("session/close")
    assert agent.pop(f"session/{method}")["params"] == {"sessionId": "old", **PLACE}


def resuming() -> Agent:
    agent = Agent()
    agent.switch("old", **FACTS, closed_cleanly=True, honest=True)
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


def test_what_is_not_resumed_is_loaded() -> None:
    agent = resuming()
    agent.refuse("session/resume", -32603, "cannot")
    agent.say(user_message("and pear"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


@pytest.mark.parametrize(
    ("code", "words", "honest"),
    [(-32002, "Resource not found", "true"), (-32601, "Method not found", "false"), (-32000, "log in", "null")],
)
def test_an_agent_that_refuses_an_unknown_id_is_honest(code: int, words: str, honest: str) -> None:
    agent = Agent()
    agent.ask("probe_resume", nonce=NONCE)
    agent.refuse("session/resume", code, words)
    assert agent.reported[-1] == f'c1: {{"honest": {honest}}}'
    turn(agent)
    assert agent.reported[-1] == "c2: stop 'ok'"


def test_one_that_takes_an_unknown_id_is_not_and_begins_its_spare_conversation_again() -> None:
    agent = Agent()
    agent.ask("probe_resume", nonce=NONCE)
    agent.say(user_message("x", session=agent.sent[-1]["params"]["sessionId"]))
    agent.answer("session/resume")
    agent.answer("session/close")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert agent.reported[-1] == 'c1: {"honest": false}'
    agent.ask("new_session")
    assert agent.reported[-1] == f"c2: holds {JOURNALS}/s2.jsonl", "the spare one"
    assert journal_lines(agent.journal) == [], "nothing was said in any of them"


@pytest.mark.parametrize(
    ("like", "form"),
    [
        ("55e81e1f-e2a7-4387-afb9-ee17f13d2044", r"55e81e1f-e2a7-4387-afb9-[a-f]{2}\d{2}[a-f]\d{2}[a-f]\d{4}"),
        (
            "ses_de00ab22affeHMBgvTmJvXaNoh",
            r"ses_de00ab22affeHM[A-Z][a-z]{2}[A-Z][a-z][A-Z][a-z][A-Z][a-z][A-Z][a-z]{2}",
        ),
        ("session-7", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}"),
    ],
)
def test_an_unknown_id_looks_like_one_of_the_agents_own(like: str, form: str) -> None:
    made = unknown_id(like, NONCE)
    assert re.fullmatch(form, made), made
    assert made not in (like, unknown_id(like, NONCE[::-1]))


# --- whether it was closed ---


def test_a_conversation_is_opened_before_it_is_loaded_and_closed_when_it_was() -> None:
    agent = loading()
    [opened] = journal_lines(agent.journal)
    assert opened == "<opened>"
    assert agent.journal[0].path == f"{JOURNALS}/old.jsonl"
    assert agent.journal_before == [methods(agent).index("session/load")], "before the request is sent"
    agent.say(user_message("and pear"))
    agent.answer("session/load")
    agent.ask("new_session")
    assert journal_lines(agent.journal) == ["<opened>"]
    agent.answer("session/close")
    assert journal_lines(agent.journal) == ["<opened>", "<closed>"]


@pytest.mark.parametrize("why", ["refused", "empty", "unanswered"])
def test_it_is_not_closed_where_the_agent_did_not_close_it_whole(why: str) -> None:
    agent = Agent()
    if why == "refused":
        turn(agent)
    elif why == "unanswered":
        agent.prompt("hi")
        agent.ask("abort")
        agent.wait(10)
    before = len(agent.journal)
    agent.ask("new_session")
    if why == "refused":
        agent.refuse("session/close", -32603, "cannot")
    elif why == "empty":  # it gets the spare conversation, and leaves that
        agent.ask("new_session")
        agent.answer("session/close")
    else:
        agent.answer("session/close")
    assert journal_lines(agent.journal[before:]) == []


def test_one_that_another_process_has_closed_is_open_again_where_it_is_kept() -> None:
    agent = Agent()
    turn(agent)
    agent.switch("s1", closed_cleanly=True)
    assert strategy(agent) == {"strategy": "kept"}
    assert journal_lines(agent.journal)[-1] == "<opened>"


# --- how it went on ---


def test_an_error_counts_also_where_the_conversation_cannot_be_begun_again() -> None:
    agent = loading()
    agent.refuse("session/load", -32002, "Resource not found")
    agent.refuse("session/new", -32603, "no room")
    assert agent.reported[-1] == "c1: error load_refused"


def test_a_switch_without_a_way_back_says_nothing_of_an_earlier_one() -> None:
    agent = loading()
    agent.say(user_message("and pear"))
    agent.answer("session/load")
    agent.switch("empty", turns=0)
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s3"})
    assert b"strategy" not in bytes(agent.messages[-1].result)


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
    assert json.loads(bytes(agent.messages[-1].result))["context"] == {"used": 7, "size": 10}


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


def verdict(*replayed: str, tail: str = TAIL, last: str = "and pear") -> ReplayVerdict:
    replay = Replay("old")
    for number, text in enumerate(replayed):
        replay.take(user_message(text, messageId=str(number))["params"]["update"])
    return replay.verdict(JournalFacts("old", CWD, 2, last, tail), "")


def test_of_a_replay_the_latest_messages_are_kept_and_the_longest_prompt_is_among_them() -> None:
    note, prompt = "[note] " + "x" * (MAX_REPLAY // 8), "p" * (8 * 1024 * 1024)
    assert verdict("of another", *[note] * 9) is ReplayVerdict.LESS
    assert verdict("of another", *[note] * 6) is ReplayVerdict.FOREIGN
    assert verdict(*[note] * 9, prompt, last=prompt) is ReplayVerdict.WHOLE
    assert verdict("and pear", "x" * MAX_REPLAY) is ReplayVerdict.LESS, "longer than any prompt"


def test_a_replay_that_takes_long_to_compare_counts_as_less() -> None:
    tail = "\n".join(f"user:question {number}" for number in range(500))
    assert verdict("of another", tail=tail) is ReplayVerdict.FOREIGN
    assert verdict("of another" * 100_000, tail=tail) is ReplayVerdict.LESS
    assert verdict("and pear", *["of another"] * 40_000, tail=tail) is ReplayVerdict.LESS
