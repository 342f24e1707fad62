"""Conversations of an agent's process: begun, left, kept, loaded, resumed, fed again, and never loaded twice."""

import json
from typing import Any

import pytest

from tests.rpc.acp.agent import CWD, INITIALIZED, JOURNALS, Agent, piece, update, user_message
from tests.rpc.acp.conversations import FACTS, PLACE, methods, strategy, turn

WITHOUT_CLOSE = {"loadSession": True, "promptCapabilities": {"embeddedContext": True}}
# --- new ---


def test_the_first_new_session_is_the_spare_one_and_costs_nothing() -> None:
    agent = Agent()
    agent.ask("new_session")
    assert agent.reported == ["c1: holds /journals/s1.jsonl"]
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
    assert agent.reported[-1] == "c2: holds /journals/s2.jsonl"


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
    assert agent.reported[-1] == "c2: holds /journals/s2.jsonl"


def test_a_prompt_to_the_spare_conversation_uses_it_up() -> None:
    agent = Agent()
    turn(agent)
    agent.ask("new_session")
    assert methods(agent)[-1] == "session/close"


def test_a_spare_conversation_that_was_reported_as_the_workers_is_no_new_one() -> None:
    agent = Agent()
    agent.ask("get_state")
    agent.ask("new_session")
    assert methods(agent) == ["session/close"]


@pytest.mark.parametrize("abilities", [WITHOUT_CLOSE, None])
def test_a_process_that_closes_none_is_to_be_retired_after_20_conversations(abilities: Any) -> None:
    agent = Agent(abilities=abilities)
    agent.ask("new_session")
    for number in range(2, 21):
        assert agent.dialect.retire_reason is None
        agent.ask("new_session")
        if abilities is None:
            agent.refuse("session/close", -32603, "no")
        agent.answer("session/new", {"sessionId": f"s{number}"})
    assert agent.dialect.retire_reason is not None
    assert ("session/close" in methods(agent)) is (abilities is None)
    agent.ask("new_session")
    assert agent.reported[-1] == "c21: error used"
    turn(agent)
    assert agent.reported[-1] == "c22: stop 'ok'", "nothing was changed"


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
    assert agent.reported[-2:] == ["c2: error busy", "c3: error busy"]
    agent.end()
    agent.switch("old", **FACTS)
    agent.ask("new_session")
    agent.prompt("x")
    assert agent.reported[-2:] == ["c5: error busy", "c6: error busy"]


# --- go on ---


def test_a_conversation_of_another_directory_is_refused() -> None:
    agent = Agent()
    agent.switch("old", cwd="/home/u/other", **FACTS)
    assert agent.reported == ["c1: error other_cwd"]
    agent.switch("s1", cwd="/home/u/project/./", turns=0)
    assert agent.reported[-1] == "c2: holds /journals/s1.jsonl", "the same directory in other words"


def test_a_conversation_without_a_turn_is_begun_anew_under_its_transcript() -> None:
    agent = Agent()
    agent.switch("old", turns=0)
    assert agent.reported == ["c1: holds /journals/old.jsonl"]
    assert agent.sent == [], "the spare one serves"
    agent.switch("other", turns=0)
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    assert agent.reported[-1] == "c2: holds /journals/other.jsonl"
    agent.prompt("hi")
    [entry] = agent.journal
    assert (entry.path, entry.header and entry.header.id) == ("/journals/other.jsonl", "other")
    assert entry.header is not None
    assert entry.header.agent_session == "s2"


def test_one_whose_only_turn_did_not_end_is_reported_what_was_said() -> None:
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
    assert agent.reported[-2:] == ['agent_resumed {"strategy": "kept"}', "c3: holds /journals/s1.jsonl"]
    assert len(agent.sent) == before


EDITORS = [{"name": "files", "command": "mcp-files", "args": [], "env": []}]
OWN = [{"name": "docs", "command": "mcp-docs", "args": [], "env": []}]


def test_a_conversation_is_begun_and_loaded_with_its_own_mcp_servers_beside_the_definitions() -> None:
    agent = Agent(mcp_servers=OWN)
    agent.ask("new_session", mcp_servers=[*EDITORS, {**EDITORS[0], "name": "docs"}])
    agent.answer("session/close")
    begun = agent.pop("session/new")
    assert begun["params"]["mcpServers"] == [*OWN, *EDITORS], "the definition's has its name"
    agent.say({"jsonrpc": "2.0", "id": begun["id"], "result": {"sessionId": "s2"}})
    agent.ask("switch_session", **switching("old", EDITORS))
    agent.answer("session/close")
    loaded = agent.pop("session/load")
    assert loaded["params"]["mcpServers"] == [*OWN, *EDITORS]
    agent.say(user_message("and pear", session="old"))
    agent.say({"jsonrpc": "2.0", "id": loaded["id"], "result": {}})
    agent.ask("new_session")
    agent.answer("session/close")
    assert agent.pop("session/new")["params"]["mcpServers"] == OWN, "of another conversation"


def test_one_that_is_open_here_with_other_mcp_servers_is_closed_and_loaded() -> None:
    agent = Agent()
    turn(agent)
    facts = {"turns": 1, "last_user_text": "hi", "tail": "user:hi"}
    agent.ask("switch_session", **switching("s1", EDITORS, **facts))
    agent.answer("session/close")
    loaded = agent.pop("session/load")
    assert loaded["params"]["mcpServers"] == EDITORS
    agent.say(user_message("hi", session="s1"))
    agent.say({"jsonrpc": "2.0", "id": loaded["id"], "result": {}})
    before = len(agent.sent)
    agent.ask("switch_session", **switching("s1", EDITORS, **facts))
    assert len(agent.sent) == before, "the same ones: it is kept"


def switching(session: str, servers: list[Any], **facts: Any) -> dict[str, Any]:
    journal = {"agent_session": session, "cwd": CWD, **FACTS, **facts}
    return {"session_file": f"{JOURNALS}/{session}.jsonl", "journal": journal, "mcp_servers": servers}


def left_one() -> Agent:
    """An agent that closes nothing and has modes, asked to go on with ``s1``, which it left for ``s2``."""
    agent = Agent(ready=False)
    modes = {"availableModes": [{"id": "ask"}], "currentModeId": "ask"}
    agent.start({**INITIALIZED, "agentCapabilities": WITHOUT_CLOSE}, modes=modes)
    turn(agent)
    agent.ask("new_session")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.switch("s1", turns=1, last_user_text="hi")
    return agent


def test_one_that_was_left_unclosed_is_kept_where_the_agent_still_has_it() -> None:
    agent = left_one()
    assert agent.pop("session/set_mode")["params"] == {"sessionId": "s1", "modeId": "ask"}
    agent.say(piece("[MODE_UPDATE] ask", session="s1"))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert strategy(agent) == {"strategy": "kept"}
    assert not any("MODE_UPDATE" in line for line in agent.reported)


def test_one_that_the_agent_has_ended_for_another_is_loaded() -> None:
    agent = left_one()
    agent.refuse("session/set_mode", -32602, "Unknown sessionId: s1")
    agent.pop("session/load")
    agent.say(user_message("hi", session="s1"))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert strategy(agent) == {"strategy": "loaded"}


def test_one_that_is_open_here_and_behind_is_closed_and_loaded() -> None:
    agent = Agent()
    turn(agent, "remember apple")
    agent.switch("s1", **FACTS)
    agent.answer("session/close")
    assert agent.pop("session/load")["params"] == {"sessionId": "s1", **PLACE}
    agent.say(user_message("and pear", session="s1"))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {}})
    assert strategy(agent) == {"strategy": "loaded"}


def test_one_that_is_behind_and_cannot_be_closed_is_stale() -> None:
    agent = Agent(abilities=WITHOUT_CLOSE)
    turn(agent)
    agent.switch("s1", **FACTS)
    assert agent.reported[-1] == "c2: error stale"
    assert "session/load" not in methods(agent)
    turn(agent)
    assert agent.reported[-1] == "c3: stop 'ok'", "nothing was changed"


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
    assert agent.reported[-1] == "c2: error stale"
    agent.switch("s1", **FACTS)
    agent.refuse("session/close", -32603, "no")
    assert agent.reported[-1] == "c3: error stale"
    assert "session/load" not in methods(agent)


# --- updates that belong elsewhere ---


def test_updates_before_the_answer_to_session_new_are_held_and_belong_to_it() -> None:
    agent = Agent(ready=False)
    agent.answer("initialize", INITIALIZED)
    agent.update("available_commands_update", session="s1", availableCommands=[{"name": "help"}])
    agent.update("session_info_update", session="other", title="not ours")
    agent.answer("session/new", {"sessionId": "s1"})
    agent.ask("get_commands")
    assert agent.reported[-1] == 'c1: {"commands": [{"name": "help"}]}'
    assert not any("not ours" in line for line in agent.reported)


@pytest.mark.parametrize(("size", "lines", "held"), [(10, 200, 64), (100_000, 20, 10)])
def test_no_more_than_64_lines_and_a_MiB_are_held(size: int, lines: int, held: int) -> None:  # noqa: N802 - a unit
    agent = Agent(ready=False)
    agent.answer("initialize", INITIALIZED)
    agent.say(*(update("session_info_update", title=f"{number:05}" + "x" * size) for number in range(lines)))
    agent.answer("session/new", {"sessionId": "s1"})
    assert len([line for line in agent.reported if line.startswith("state_changed")]) == held


@pytest.mark.parametrize("answer", [{"error": {"code": 1, "message": "no"}}, {"result": {}}])
def test_what_was_held_for_a_conversation_that_did_not_begin_is_none_of_the_next_ones(answer: dict[str, Any]) -> None:
    agent = Agent()
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.update("session_info_update", session="s2", title="of the first")
    agent.say({"jsonrpc": "2.0", "id": agent.pop("session/new")["id"], **answer})
    agent.ask("new_session")
    agent.update("session_info_update", session="s2", title="of the second")
    agent.answer("session/new", {"sessionId": "s2"})
    assert [data["session_name"] for event, data in agent.events if event == "state_changed"] == ["of the second"]


def test_updates_of_earlier_conversations_change_nothing_and_are_counted() -> None:
    agent = Agent()
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("hi")
    reported = list(agent.reported)
    agent.say(*[piece("old", session="s1")] * 100)
    before = agent.dialect.retire_reason
    agent.say(piece("old", session="s1"), update("tool_call", session="stranger", toolCallId="t"))
    assert (before, agent.dialect.retire_reason is None) == (None, False)
    assert agent.reported == reported


# --- ids ---


@pytest.mark.parametrize("begin", ["new", "again", "fed again"])
def test_an_id_that_an_earlier_conversation_has_is_refused(begin: str) -> None:
    agent = Agent()
    turn(agent)
    if begin == "new":
        agent.ask("new_session")
    elif begin == "again":
        agent.switch("other", turns=0)
    else:
        agent.switch("other", **FACTS)
    agent.answer("session/close")
    if begin == "fed again":
        agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "s1"})
    assert agent.reported[-1].endswith("error id_reused")
    agent.prompt("hi")
    assert agent.reported[-1].endswith("error no_session")


def test_a_conversation_that_is_fed_again_may_get_its_old_id() -> None:
    agent = Agent()
    agent.switch("old", **FACTS)
    agent.answer("session/close")
    agent.refuse("session/load", -32002, "Resource not found")
    agent.answer("session/new", {"sessionId": "old"})
    assert agent.reported[-1].endswith("holds /journals/old.jsonl")


def test_the_first_conversation_of_a_process_has_the_id_of_another_one() -> None:
    """Without a close it cannot be loaded: what was said in it, and what not, could not be told apart."""
    agent = Agent(abilities={"loadSession": True})
    agent.switch("s1", **FACTS)
    assert agent.reported[-1].endswith("error id_reused")
    closing = Agent()
    closing.switch("s1", **FACTS)
    closing.answer("session/close")
    closing.say(user_message("and pear", session="s1"))
    closing.answer("session/load")
    assert strategy(closing) == {"strategy": "loaded"}
