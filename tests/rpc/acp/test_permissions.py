"""The questions of an ACP agent before its calls: a person decides, a rule, or the end of the turn."""

import json
from typing import Any

import pytest

from tests.rpc.acp.agent import INITIALIZED, Agent, piece


def asked(mode: str = "approval", *, kind: str = "execute", abilities: Any = None, **members: Any) -> Agent:
    """An agent in a turn that has asked about the call ``t1``."""
    agent = Agent(permission_mode=mode, abilities=abilities)
    agent.prompt("hi")
    agent.reported.clear()
    agent.ask_permission(0, kind=kind, title="make", rawInput={"command": "make"}, **members)
    return agent


def outcomes(agent: Agent) -> list[Any]:
    """What the agent was answered, in order."""
    answers = [line["result"]["outcome"] for line in agent.sent if "result" in line]
    return [answer.get("optionId", answer["outcome"]) for answer in answers]


# --- a person ---


def test_a_question_is_reported_with_all_that_can_be_answered() -> None:
    agent = asked()
    assert agent.reported == [
        "tool start execute PENDING 'make'",
        "permission_required t1 execute [o-allow_always,o-allow_once,o-reject_once]",
    ]
    data = agent.events[-1][1]
    assert data["call"] == {
        "id": "t1",
        "name": "execute",
        "input_preview": "make",
        "state": "AWAITING_APPROVAL",
        "approval": "required",
    }
    assert data["options"][1] == {"id": "o-allow_once", "name": "allow_once", "kind": "allow_once"}
    assert data["run_id"] == "r1"
    assert data["shown"]["parts"] == [
        {"name": "title", "text": "make"},
        {"name": "input", "text": '{"command":"make"}'},
    ]
    assert outcomes(agent) == []


@pytest.mark.parametrize(("decision", "option"), [("allow", "o-allow_once"), ("deny", "o-reject_once")])
def test_a_decision_chooses_the_option_that_holds_once(decision: str, option: str) -> None:
    agent = asked()
    agent.ask("decide", call_id="t1", decision=decision, by="alice")
    assert agent.sent[-1] == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {"outcome": {"outcome": "selected", "optionId": option}},
    }
    assert f"permission_decided t1 {decision} by alice" in agent.reported
    assert agent.reported[-1] == f'c2: {{"call_id": "t1", "decision": "{decision}"}}'


def test_an_allowed_call_runs() -> None:
    agent = asked()
    agent.ask("decide", call_id="t1", decision="allow")
    assert agent.reported[-2] == "tool running execute RUNNING 'make'"


def test_any_offered_option_may_be_chosen_by_its_id_and_no_other() -> None:
    agent = asked()
    agent.ask("decide", call_id="t1", decision="allow", option_id="o-forever")
    assert agent.reported[-1] == "c2: error invalid_params"
    assert outcomes(agent) == []
    agent.ask("decide", call_id="t1", decision="allow", option_id="o-allow_always")
    assert outcomes(agent) == ["o-allow_always"]


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_without_an_option_of_that_kind_the_answer_is_cancelled(decision: str) -> None:
    agent = asked(kinds=("allow_always", "reject_always"))
    agent.ask("decide", call_id="t1", decision=decision)
    assert outcomes(agent) == ["cancelled"], "never one that holds for ever"
    assert agent.reported[-1] == 'c2: {"call_id": "t1", "decision": "deny"}'


def test_a_question_is_decided_once() -> None:
    agent = asked()
    agent.ask("decide", call_id="t1", decision="allow")
    agent.ask("decide", call_id="t1", decision="deny")
    agent.ask("decide", call_id="t2", decision="deny")
    agent.ask("decide", call_id="t1", decision="perhaps")
    assert agent.reported[-3:] == ["c3: error already_decided", "c4: error nothing_pending", "c5: usage invalid_params"]
    assert outcomes(agent) == ["o-allow_once"]


def test_a_call_that_is_asked_about_again_has_a_name_of_its_own() -> None:
    agent = asked()
    agent.ask_permission("again", kind="execute")
    agent.ask("decide", call_id="t1#2", decision="deny")
    agent.ask("decide", call_id="t1", decision="allow")
    assert [line["id"] for line in agent.sent if "result" in line] == ["again", 0]
    assert outcomes(agent) == ["o-reject_once", "o-allow_once"]


def test_a_call_of_another_conversation_may_have_the_id_of_one_that_has_ended(agent: Agent) -> None:
    for session in ("s1", "s2"):
        agent.prompt("hi")
        agent.ask_permission(5, session=session)
        agent.ask("decide", call_id="t1", decision="allow")
        assert agent.sent[-1]["result"]["outcome"]["optionId"] == "o-allow_once"
        agent.update("tool_call_update", session=session, toolCallId="t1", status="completed")
        agent.end()
        agent.ask("new_session")
        agent.answer("session/close")
        agent.answer("session/new", {"sessionId": "s2"})


def test_a_later_turn_may_use_the_id_of_a_call_again_but_no_late_word_of_it_does(agent: Agent) -> None:
    for _ in range(2):
        agent.prompt("hi")
        agent.update("tool_call_update", toolCallId="t1", status="in_progress")
        agent.update("tool_call", toolCallId="t1", title="make")
        agent.ask_permission(5)
        agent.ask("decide", call_id="t1", decision="allow")
        assert agent.sent[-1]["result"]["outcome"]["optionId"] == "o-allow_once"
        agent.update("tool_call_update", toolCallId="t1", status="completed")
        agent.update("tool_call", toolCallId="t1", title="late")
        agent.end()
    phases = [data["phase"] for event, data in agent.events if event == "tool"]
    assert phases == ["start", "update", "running", "end", "start", "running", "end"]


def test_a_question_never_takes_the_place_of_an_open_one() -> None:
    agent = asked()
    agent.ask_permission(1, "t1#2", title="own id")
    agent.ask_permission(2, "t1", title="make")
    assert outcomes(agent) == ["cancelled"]
    agent.ask("decide", call_id="t1#2", decision="allow")
    assert agent.sent[-1]["id"] == 1


def test_a_note_goes_with_the_next_turn_of_its_conversation() -> None:
    agent = asked(abilities={"loadSession": True})
    agent.ask("decide", call_id="t1", decision="deny", note="use ninja")
    agent.end()
    agent.ask("new_session")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("of another session")
    assert len(agent.sent[-1]["params"]["prompt"]) == 1
    agent.end()
    agent.switch("s1")
    agent.prompt("go on")
    note, text = agent.sent[-1]["params"]["prompt"]
    assert note["text"].rstrip("\n").splitlines() == ["[Notes on earlier tool calls]", "Denied 'make': use ninja"]
    assert text["text"] == "go on"
    agent.end()
    agent.prompt("and on")
    assert len(agent.sent[-1]["params"]["prompt"]) == 1


def test_a_long_call_can_be_read_in_pages() -> None:
    agent = asked(content=[{"type": "content", "content": {"type": "text", "text": "x" * 50_000}}])
    shown = agent.events[-1][1]["shown"]
    assert shown["hidden"] > 40_000
    agent.ask("describe_call", call_id="t1", offset=4_000)
    page = json.loads(bytes(agent.messages[-1].result))
    assert page["offset"] == 4_000
    assert page["hidden"] > 0
    agent.ask("describe_call", call_id="other")
    assert agent.reported[-1] == "c3: error nothing_pending"


def test_what_describes_a_question_is_no_output_of_the_call() -> None:
    agent = asked(content=[{"type": "content", "content": {"type": "text", "text": "shall I?"}}])
    agent.ask("decide", call_id="t1", decision="allow")
    agent.update("tool_call_update", toolCallId="t1", status="completed")
    assert agent.reported[-1] == "tool end execute COMPLETED 'make'"


def test_options_in_the_words_of_other_agents_are_understood() -> None:
    agent = Agent()
    agent.prompt("hi")
    options = [{"id": "y", "label": "Yes", "kind": "allow_once"}, {"name": "no id"}, 7]
    agent.request(
        5, "session/request_permission", {"sessionId": "s1", "toolCall": {"toolCallId": 3}, "options": options}
    )
    assert agent.events[-1][1]["options"] == [{"id": "y", "name": "Yes", "kind": "allow_once"}]
    agent.ask("decide", call_id="call-1", decision="allow")
    assert outcomes(agent) == ["y"]


# --- a rule ---


def test_auto_allows_once() -> None:
    agent = asked("auto")
    assert outcomes(agent) == ["o-allow_once"]
    assert agent.reported == ["tool start execute PENDING 'make'", "tool running execute RUNNING 'make'"]


def test_auto_allows_nothing_for_ever() -> None:
    assert outcomes(asked("auto", kinds=("allow_always",))) == ["cancelled"]


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *((kind, "o-allow_once") for kind in ("read", "search", "think", "fetch")),
        *((kind, "o-reject_once") for kind in ("edit", "delete", "move", "execute", "switch_mode", "other", "_own")),
    ],
)
def test_readonly_allows_what_changes_nothing(kind: str, option: str) -> None:
    assert outcomes(asked("readonly", kind=kind)) == [option]


def test_readonly_knows_a_call_by_what_was_said_of_it_before() -> None:
    agent = Agent(permission_mode="readonly")
    agent.prompt("hi")
    agent.update("tool_call", toolCallId="t1", kind="read", title="cat")
    agent.ask_permission(1)
    agent.ask_permission(2, "t2")
    assert outcomes(agent) == ["o-allow_once", "o-reject_once"]


# --- the end of the turn ---


def test_an_abort_answers_open_and_later_questions_at_once() -> None:
    agent = asked()
    agent.ask("abort")
    assert [line.get("method", "answer") for line in agent.sent] == ["session/prompt", "session/cancel", "answer"]
    assert agent.reported[-1] == "permission_decided t1 deny by abort"
    agent.ask_permission(9, "t2")
    assert outcomes(agent) == ["cancelled", "cancelled"]
    assert not any(line.startswith("permission_required t2") for line in agent.reported)
    agent.ask("decide", call_id="t1", decision="allow")
    assert agent.reported[-1] == "c3: error already_decided"
    agent.end("cancelled")
    assert agent.reported[-2:] == ["c1: aborted ''", 'c2: {"aborted": true}']


@pytest.mark.parametrize("how", ["denied", "by rule"])
def test_a_turn_that_a_denial_has_ended_says_so(how: str) -> None:
    agent = asked("approval" if how == "denied" else "readonly")
    if how == "denied":
        agent.ask("decide", call_id="t1", decision="deny")
    agent.end("cancelled")
    assert agent.reported[-1] == "c1: aborted '' (a call was denied)"


def test_a_question_that_is_open_when_the_turn_ends_is_answered() -> None:
    agent = asked()
    agent.end()
    assert outcomes(agent) == ["cancelled"]
    assert "permission_decided t1 deny by abort" in agent.reported


def test_a_question_that_the_agent_takes_back_is_decided_by_it() -> None:
    agent = asked()
    agent.say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 7}})
    assert outcomes(agent) == []
    agent.say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 0}})
    assert agent.reported[-1] == "permission_decided t1 deny by agent"
    assert outcomes(agent) == ["cancelled"], "every request is answered"
    agent.end("cancelled")
    assert agent.reported[-1] == "c1: aborted '' (the agent has cancelled the turn by itself)"


@pytest.mark.parametrize("params", [{}, {"requestId": True}, {"requestId": 1.0}, None])
def test_a_question_is_taken_back_by_its_own_id_alone(params: Any) -> None:
    agent = Agent()
    agent.ask_permission(None, "t1")
    agent.ask_permission(1, "t2")
    agent.say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})
    assert outcomes(agent) == []


# --- other requests ---


@pytest.mark.parametrize(
    "method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "elicitation/create", "craft/x", "_own/y"]
)
@pytest.mark.parametrize("identity", [0, "u-1", None])
def test_any_other_request_is_refused_at_once(method: str, identity: Any) -> None:
    agent = Agent()
    agent.request(identity, method, {"sessionId": "s1"})
    [answer] = agent.sent
    assert (answer["id"], answer["error"]["code"]) == (identity, -32601)


@pytest.mark.parametrize("method", ["session/request_permission", "session/update", "craft/x"])
@pytest.mark.parametrize("identity", [True, 1.5, {"a": 1}, "x" * 1_025])
def test_a_request_whose_id_cannot_be_repeated_is_refused_without_one(method: str, identity: Any) -> None:
    agent = Agent()
    agent.request(identity, method, {"sessionId": "s1"})
    words = "id: expected a whole number or a text of at most 1,024 characters"
    assert agent.sent == [{"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": words}}]
    assert agent.reported == []


def test_a_question_without_params_is_refused_by_naming_them() -> None:
    agent = Agent()
    agent.request(4, "session/request_permission", ["s1"])
    [answer] = agent.sent
    assert answer["error"] == {"code": -32602, "message": "params: an object is expected"}


def test_a_question_may_have_the_id_of_the_prompt_that_is_open() -> None:
    agent = Agent()
    agent.prompt("hi")
    agent.ask_permission(agent.sent[-1]["id"])
    agent.ask("decide", call_id="t1", decision="allow")
    agent.say(piece("ok"))
    agent.end()
    assert agent.reported[-1] == "c1: stop 'ok'"


def test_a_helper_of_the_turn_may_ask_and_an_earlier_conversation_may_not() -> None:
    agent = Agent(ready=False)
    agent.start(INITIALIZED)
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2"})
    agent.prompt("hi")
    agent.ask_permission(1, "t1", session="s1")
    assert outcomes(agent) == ["cancelled"]
    agent.ask_permission(2, "t2", session="helper")
    assert agent.reported[-1].startswith("permission_required t2 ")


def test_a_question_of_no_turn_is_asked_too() -> None:
    agent = Agent()
    agent.ask_permission(1)
    assert agent.reported[-1].startswith("permission_required t1 ")
    agent.ask("decide", call_id="t1", decision="allow")
    assert outcomes(agent) == ["o-allow_once"]
