"""Conversations of an agent's process: begun, left, kept, loaded, resumed, fed again, and never loaded twice."""

import json
from typing import Any

import pytest

from errors import ProtocolViolation
from tests.rpc.acp.agent import CWD, INITIALIZED, Agent, journal_lines, piece, told_by_user, update

PLACE = {"cwd": CWD, "mcpServers": []}
WITHOUT_CLOSE = {"loadSession": True, "promptCapabilities": {"embeddedContext": True}}
TAIL = "user:remember apple\nassistant:I do\nuser:and pear\nassistant:yes"
FACTS: dict[str, Any] = {"turns": 2, "last_user_text": "and pear", "tail": TAIL}


def methods(agent: Agent) -> list[str]:
    return [line["method"] for line in agent.sent if "method" in line]


def loading(**facts: Any) -> Agent:
    """An agent that is asked to load ``old``."""
    agent = Agent()
    agent.switch("old", **{**FACTS, **facts})
    agent.answer("session/close")
    return agent


def strategy(agent: Agent) -> dict[str, Any]:
    [found] = [data for event, data in agent.events if event == "agent_resumed"]
    return {name: found[name] for name in ("strategy", "cause") if name in found}


def turn(agent: Agent, text: str = "hi") -> None:
    agent.prompt(text)
    agent.say(piece("ok", session=agent.pop("session/prompt")["params"]["sessionId"]))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {"stopReason": "end_turn"}})


# --- new ---


def test_the_first_new_session_is_the_spare_one_and_costs_nothing() -> None:
    agent = Agent()
    agent.ask("new_session")
    assert agent.told == ["c1: holds /journals/s1.jsonl"]
    assert agent.sent == []


def test_the_next_one_closes_the_old_one_first() -> None:
    agent = Agent()
    agent.ask("new_session")
    agent.ask("new_session", parent_session="s1")
    assert agent.pop("session/close")["params"] == {"sessionId": "s1"}
    assert methods(agent) == ["session/close"]
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert agent.pop("session/new")["params"] == PLACE
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {"sessionId": "s2"}})
    assert agent.told[-1] == "c2: holds /journals/s2.jsonl"


@pytest.mark.parametrize("how", ["refused", "late"])
def test_a_close_that_fails_or_takes_too_long_is_no_fault(how: str) -> None:
    agent = Agent()
    agent.ask("new_session")
    agent.ask("new_session")
    if how == "refused":
        agent.refuse("session/close", -32603, "no")
    else:
        agent.wait(1.9)
        assert methods(agent) == ["session/close"]
        agent.wait(0.2)
    agent.answer("session/new", {"sessionId": "s2"})
    assert agent.told[-1] == "c2: holds /journals/s2.jsonl"


def test_a_prompt_to_the_spare_conversation_uses_it_up() -> None:
    agent = Agent()
    turn(agent)
    agent.ask("new_session")
    assert methods(agent)[-1] == "session/close"


def test_a_process_that_cannot_close_is_to_be_retired_after_20_conversations() -> None:
    agent = Agent(abilities=WITHOUT_CLOSE)
    agent.ask("new_session")
    for number in range(2, 21):
        assert agent.dialect.retire_reason is None
        agent.ask("new_session")
        agent.answer("session/new", {"sessionId": f"s{number}"})
    assert agent.dialect.retire_reason is not None
    assert "session/close" not in methods(agent)
    agent.ask("new_session")
    assert agent.told[-1] == "c21: error used"


def test_ids_that_are_no_safe_file_names_become_hashes() -> None:
    names = {}
    for session in ("a/b", ".hidden", "x" * 129, "ok.1-_", "x" * 128):
        agent = Agent(ready=False)
        agent.answer("initialize", INITIALIZED)
        agent.answer("session/new", {"sessionId": session})
        agent.ask("new_session")
        names[session] = json.loads(bytes(agent.messages[-1].result))["session_id"]
    assert names["ok.1-_"] == "ok.1-_"
    assert names["x" * 128] == "x" * 128
    assert names["a/b"] == "c14cddc033f64b9dea80ea675cf280a0"
    assert all(len(names[session]) == 32 for session in ("a/b", ".hidden", "x" * 129))


def test_no_conversation_is_changed_beside_a_run_or_another_change() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.ask("new_session")
    agent.switch("old", **FACTS)
    assert agent.told[-2:] == ["c2: error busy", "c3: error busy"]
    agent.end()
    agent.switch("old", **FACTS)
    agent.ask("new_session")
    agent.prompt("x")
    assert agent.told[-2:] == ["c5: error busy", "c6: error busy"]


# --- go on ---


def test_a_conversation_of_another_directory_is_refused() -> None:
    agent = Agent()
    agent.switch("old", cwd="/home/u/other", **FACTS)
    assert agent.told == ["c1: error other_cwd"]
    agent.switch("s1", cwd="/home/u/project/./", turns=0)
    assert agent.told[-1] == "c2: holds /journals/s1.jsonl", "the same directory in other words"


def test_a_conversation_without_a_turn_is_begun_anew_under_its_transcript() -> None:
    agent = Agent()
    agent.switch("old", turns=0)
    assert agent.told == ["c1: holds /journals/old.jsonl"]
    assert agent.sent == [], "the spare one serves"
    agent.switch("other", turns=0)
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert agent.told[-1] == "c2: holds /journals/other.jsonl"
    agent.prompt("hi")
    [entry] = agent.journal
    assert (entry.path, entry.header and entry.header.id) == ("/journals/other.jsonl", "other")
    assert entry.header is not None
    assert entry.header.agent_session == "s2"


def test_one_whose_only_turn_did_not_end_is_told_what_was_said() -> None:
    agent = Agent()
    agent.switch("old", turns=0, tail="user:begin")
    agent.prompt("go on")
    assert "user:begin" in json.dumps(agent.sent[-1]["params"]["prompt"][0])
    assert strategy(agent)["strategy"] == "refed"


def test_a_conversation_that_is_open_here_is_kept() -> None:
    agent = Agent()
    agent.ask("new_session")
    turn(agent)
    before = len(agent.sent)
    agent.switch("s1", turns=1, last_user_text="hi")
    assert agent.told[-2:] == ['agent_resumed {"strategy": "kept"}', "c3: holds /journals/s1.jsonl"]
    assert len(agent.sent) == before


def test_one_that_is_open_here_and_behind_is_closed_and_loaded() -> None:
    agent = Agent()
    turn(agent, "remember apple")
    agent.switch("s1", **FACTS)
    agent.answer("session/close")
    assert agent.pop("session/load")["params"] == {"sessionId": "s1", **PLACE}
    agent.say(told_by_user("and pear", session="s1"))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert strategy(agent) == {"strategy": "loaded"}


def test_one_that_is_behind_and_cannot_be_closed_is_stale() -> None:
    agent = Agent(abilities=WITHOUT_CLOSE)
    turn(agent)
    agent.switch("s1", **FACTS)
    assert agent.told[-1] == "c2: error stale"
    assert "session/load" not in methods(agent)
    turn(agent)
    assert agent.told[-1] == "c3: stop 'ok'", "nothing was changed"


@pytest.mark.parametrize("how", ["refused", "late"])
def test_an_id_is_never_loaded_twice_without_a_close(how: str) -> None:
    agent = Agent()
    turn(agent)
    agent.switch("s1", **FACTS)
    if how == "refused":
        agent.refuse("session/close", -32603, "no")
    else:
        agent.pop("session/close")
        agent.wait(2.1)
    assert agent.told[-1] == "c2: error stale"
    agent.switch("s1", **FACTS)
    agent.refuse("session/close", -32603, "no")
    assert agent.told[-1] == "c3: error stale"
    assert "session/load" not in methods(agent)


def test_a_replay_is_swallowed_and_proves_the_conversation() -> None:
    agent = loading()
    assert agent.pop("session/load")["params"] == {"sessionId": "old", **PLACE}
    agent.say(
        told_by_user("remember apple"),
        piece("I do", session="old"),
        update("tool_call", session="old", toolCallId="t", title="x", status="completed"),
        told_by_user(" and  pear\n"),
        piece("yes", session="old", kind="agent_thought_chunk"),
    )
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": None})
    assert agent.told == ['agent_resumed {"strategy": "loaded"}', "c1: holds /journals/old.jsonl"]
    turn(agent, "third")
    assert journal_lines(agent.journal) == ["user: third", "assistant: ok (stop)"], "its header is there"
    agent.switch("old", **{**FACTS, "turns": 3})
    assert agent.told[-2] == 'agent_resumed {"strategy": "kept"}'


@pytest.mark.parametrize("chunks", [["and ", "pear"], ["and pear", "[image]"]])
def test_the_pieces_of_a_replayed_message_belong_together(chunks: list[str]) -> None:
    agent = loading()
    agent.say(*(told_by_user(chunk, messageId="m1") for chunk in chunks))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_what_was_sent_around_a_text_is_no_other_text() -> None:
    agent = Agent(instructions="Be brief.")
    agent.switch("old", turns=1, last_user_text="hi", tail="user:hi")
    agent.answer("session/close")
    agent.say(told_by_user("Be brief.hiAbout the answer to this message: use JSON"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


@pytest.mark.parametrize(
    "replayed", [[], ["remember apple"], ["remember apple", "[Request interrupted by user]"], ["<command>"]]
)
def test_less_than_the_transcript_is_fed_again(replayed: list[str]) -> None:
    agent = loading()
    agent.say(*(told_by_user(text) for text in replayed), piece("I do", session="old"))
    agent.answer("session/load")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "less"}
    assert agent.told[-1] == "c1: holds /journals/old.jsonl", "the transcript stays the same"


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
    agent.say(*(line for text in replayed for line in (told_by_user(text), piece("x", session="old"))))
    if replayed[0].startswith("look"):  # a part of it may be anything: not proof enough for either
        agent.answer("session/load")
        agent.answer("session/close")
        assert methods(agent)[-1] == "session/new"
        return
    with pytest.raises(ProtocolViolation, match="another conversation"):
        agent.answer("session/load")


def test_what_the_agent_adds_after_an_interruption_is_its_own() -> None:
    agent = loading()
    agent.say(told_by_user("and pear"), piece("x", session="old"), told_by_user("[Request interrupted by user]"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_an_error_becomes_a_new_conversation_that_is_told_the_end_of_the_old_one() -> None:
    agent = loading()
    agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "error"}
    agent.prompt("what did I say?")
    earlier, text = agent.sent[-1]["params"]["prompt"]
    assert text == {"type": "text", "text": "what did I say?"}
    assert earlier["type"] == "resource"
    assert earlier["resource"]["text"].splitlines()[0].startswith("[Earlier talk")
    assert earlier["resource"]["text"].endswith(TAIL)
    assert journal_lines(agent.journal) == [f"[s2 in {CWD}] user: what did I say?"]
    agent.end()
    agent.prompt("again")
    assert len(agent.sent[-1]["params"]["prompt"]) == 1, "once"
    agent.end()
    agent.switch("s2", **{**FACTS, "turns": 4})
    assert agent.told[-2] == 'agent_resumed {"strategy": "kept"}', "its turns go on"


def test_it_is_told_again_where_the_prompt_failed() -> None:
    agent = loading()
    agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("what?")
    agent.refuse("session/prompt", -32603, "overloaded")
    agent.prompt("what?")
    assert len(agent.sent[-1]["params"]["prompt"]) == 2


def test_at_most_64_KiB_are_told_in_a_text_where_the_agent_takes_no_resources() -> None:  # noqa: N802 - a unit
    agent = Agent(abilities={"loadSession": False})
    agent.switch("old", **{**FACTS, "tail": "\u00e9" * 65_536 + "end"})
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "unsupported"}
    agent.prompt("hi")
    earlier = agent.sent[-1]["params"]["prompt"][0]
    assert earlier["type"] == "text"
    mark, talk = earlier["text"].split("\n", 1)
    assert mark.startswith("[Earlier talk")
    assert 65_000 < len(talk.encode()) <= 65_536
    assert talk.endswith("end")


def test_a_login_that_is_missing_is_no_lost_conversation() -> None:
    agent = loading()
    agent.refuse("session/load", -32000, "Authentication required")
    assert agent.told[-1] == "c1: error auth_required"
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
        agent.say(told_by_user("remember apple"))  # some replay all the same
    agent.answer("session/resume", result)
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert strategy(agent) == {"strategy": "refed", "cause": "less"}


def test_whether_an_agent_refuses_unknown_ids_can_be_tried_out() -> None:
    agent = Agent()
    agent.ask("probe_resume", session_id="nobody")
    agent.refuse("session/resume", -32002, "Resource not found")
    assert agent.told[-1] == 'c1: {"honest": true}'
    agent.ask("probe_resume", session_id="nobody")
    agent.say(told_by_user("x", session="nobody"))
    agent.answer("session/resume")
    agent.answer("session/close")
    assert agent.told[-1] == 'c2: {"honest": false}'
    turn(agent)
    assert agent.told[-1] == "c3: stop 'ok'"


# --- time ---


def test_the_deadline_of_a_load_moves_with_each_line() -> None:
    agent = loading()
    for _ in range(3):
        agent.wait(29)
        agent.say(told_by_user("and pear"))
    agent.answer("session/load")
    assert strategy(agent) == {"strategy": "loaded"}


def test_a_load_without_a_line_is_no_answer_and_no_new_conversation() -> None:
    agent = loading()
    agent.wait(29.9)
    assert agent.told == []
    agent.wait(0.2)
    assert agent.told == ["c1: error timeout"]
    assert agent.dialect.retire_reason is not None
    assert "session/new" not in methods(agent)
    agent.say(told_by_user("late"), {"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert agent.told == ["c1: error timeout"]
    agent.switch("old", **FACTS)
    agent.refuse("session/close", -32603, "unknown")
    assert agent.told[-1] == "c2: error stale", "it may be open: it is not loaded again"


def test_a_load_takes_120_seconds_at_most() -> None:
    agent = loading()
    for _ in range(11):
        agent.wait(10)
        agent.say(told_by_user("and pear"))
    agent.wait(9.9)
    assert agent.told == []
    agent.wait(0.2)
    assert agent.told == ["c1: error timeout"]


# --- updates that belong elsewhere ---


def test_updates_before_the_answer_to_session_new_are_held_and_belong_to_it() -> None:
    agent = Agent(ready=False)
    agent.answer("initialize", INITIALIZED)
    agent.update("available_commands_update", session="s1", availableCommands=[{"name": "help"}])
    agent.update("session_info_update", session="other", title="not ours")
    agent.answer("session/new", {"sessionId": "s1"})
    agent.ask("get_commands")
    assert agent.told[-1] == 'c1: {"commands": [{"name": "help"}]}'
    assert not any("not ours" in line for line in agent.told)


@pytest.mark.parametrize(("size", "lines", "held"), [(10, 200, 64), (100_000, 20, 10)])
def test_no_more_than_64_lines_and_a_MiB_are_held(size: int, lines: int, held: int) -> None:  # noqa: N802 - a unit
    agent = Agent(ready=False)
    agent.answer("initialize", INITIALIZED)
    agent.say(*(update("session_info_update", title=f"{number:05}" + "x" * size) for number in range(lines)))
    agent.answer("session/new", {"sessionId": "s1"})
    assert len([line for line in agent.told if line.startswith("state_changed")]) == held


def test_updates_of_earlier_conversations_change_nothing_and_are_counted() -> None:
    agent = Agent()
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("hi")
    told = list(agent.told)
    agent.say(*[piece("old", session="s1")] * 100)
    before = agent.dialect.retire_reason
    agent.say(piece("old", session="s1"), update("tool_call", session="stranger", toolCallId="t"))
    assert (before, agent.dialect.retire_reason is None) == (None, False)
    assert agent.told == told
