"""Questions about tool calls: who is asked, what is shown, what an answer decides, and when a question is withdrawn."""

from typing import Any

import pytest

from tests.doors.acp.talk import Talk

CALL = {"id": "c1", "name": "exec", "input_preview": '{"command":"rm x"}', "state": "AWAITING_APPROVAL"}
SHOWN = {"parts": [{"name": "command", "text": "rm x"}]}


def ask(talk: Talk, run: str = "r1", **more: Any) -> dict[str, Any]:
    """The question that an event makes."""
    talk.event("permission_required", run, **{"call": CALL, "reason": "it removes", "shown": SHOWN, **more})
    return question(talk)


def question(talk: Talk) -> dict[str, Any]:
    (line,) = [line for line in talk.told() if line["method"] != "session/update"]
    assert line["method"] == "session/request_permission"
    return line


def choose(talk: Talk, line: dict[str, Any], option: str) -> list[tuple[str, dict[str, Any]]]:
    """What is asked of the pool when the editor answers so."""
    outcome = {"outcome": "cancelled"} if option == "cancelled" else {"outcome": "selected", "optionId": option}
    talk.line({"jsonrpc": "2.0", "id": line["id"], "result": {"outcome": outcome}})
    return talk.asked()


def withdrawn(line: dict[str, Any]) -> dict[str, Any]:
    return {"method": "$/cancel_request", "params": {"requestId": line["id"]}}


def test_the_editor_is_asked_with_all_of_the_call() -> None:
    talk = Talk()
    talk.open()
    talk.event("permission_required", "r1", call=CALL, reason="it removes", shown=SHOWN)
    announced, line = talk.told()
    assert announced["params"]["update"]["sessionUpdate"] == "tool_call", "an editor must know the call"
    assert line["params"] == {
        "sessionId": "acp-1",
        "toolCall": {
            "toolCallId": "c1",
            "title": "exec rm x",
            "name": "exec",
            "kind": "execute",
            "rawInput": {"command": "rm x"},
            "status": "pending",
            "content": [
                {"type": "content", "content": {"type": "text", "text": "it removes"}},
                {"type": "content", "content": {"type": "text", "text": "command: rm x"}},
            ],
        },
        "options": [
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ],
    }


@pytest.mark.parametrize(("option", "decision"), [("allow", "allow"), ("reject", "deny"), ("cancelled", "deny")])
def test_the_answer_decides(option: str, decision: str) -> None:
    talk = Talk()
    talk.open()
    line = ask(talk)
    decided = {"session": "acp-1", "call_id": "c1", "decision": decision}
    assert choose(talk, line, option) == [("decide", decided)]
    talk.event("permission_decided", "r1", call_id="c1", decision=decision, by="me")
    assert talk.told() == []
    assert choose(talk, line, option) == [], "once"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32601, "message": "no"}}, "answered the question with an error"),
        ({"result": {}}, "malformed"),
        ({"result": None}, "malformed"),
        ({"result": {"outcome": {"outcome": "selected"}}}, "chose an option that was not offered"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "other"}}}, "chose an option that was not offered"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": 7}}}, "malformed"),
        ({"result": {"outcome": {"outcome": "later"}}}, "an unknown outcome, 'later'"),
        ({"result": "allow"}, "malformed"),
    ],
)
def test_an_answer_that_makes_no_sense_denies_a_call_of_the_editors_own_prompt_and_no_other(
    answer: dict[str, Any], words: str
) -> None:
    talk = Talk()
    talk.open()
    _, run = talk.prompt()
    for run_id in (run, "others-run"):
        line = ask(talk, run=run_id)
        talk.line({"jsonrpc": "2.0", "id": line["id"], **answer})
        if run_id == run:
            [(method, asked)] = talk.asked()
            assert (method, asked["call_id"], asked["decision"]) == ("decide", "c1", "deny")
            assert words in asked["note"]
    assert (talk.asked(), talk.told()) == ([], [])
    line = ask(talk, run=run)
    talk.notify("session/cancel", sessionId="acp-1")
    assert [method for method, _ in talk.asked()] == ["abort"]
    talk.line({"jsonrpc": "2.0", "id": line["id"], **answer})
    assert talk.asked() == [], "the run is being aborted"


def test_a_decision_that_is_refused_is_asked_for_again_and_in_the_end_left_to_others() -> None:
    talk = Talk()
    talk.open()
    line = ask(talk)
    for _ in range(2):
        assert [method for method, _ in choose(talk, line, "allow")] == ["decide"]
        talk.refuse("worker_refused", "the disk is full")
        assert talk.asked() == [("approvals.show", {"session": "acp-1", "call_id": "c1", "offset": 0})]
        talk.answer({"page": SHOWN})
        line = question(talk)
        first = line["params"]["toolCall"]["content"][0]["content"]["text"]
        assert first == "The decision was refused: the disk is full."
    choose(talk, line, "allow")
    talk.refuse("worker_refused", "the disk is full")
    (update,) = talk.updates()
    assert (update["toolCallId"], talk.asked()) == ("c1", [])
    assert "the disk is full. It waits on; `pool approvals` shows it" in update["content"][0]["content"]["text"]


def test_a_decision_that_comes_too_late_is_not_asked_for_again() -> None:
    talk = Talk()
    talk.open()
    choose(talk, ask(talk), "allow")
    talk.refuse("usage", "decided already")
    talk.refuse("usage", "decided already")
    assert (talk.told(), talk.asked()) == ([], [])
    choose(talk, ask(talk, call={**CALL, "id": "c2"}), "allow")
    talk.lose("gone")
    assert talk.told() == []


def test_options_of_the_agent_are_offered_and_the_chosen_one_is_passed_on() -> None:
    options = [
        {"id": "o1", "name": "Yes", "kind": "allow_once"},
        {"id": "o2", "name": "Always", "kind": "allow_always"},
        {"id": "o3", "name": "", "kind": "reject_once"},
    ]
    for option, decision in (("o1", "allow"), ("o2", "allow"), ("o3", "deny")):
        talk = Talk()
        talk.open()
        line = ask(talk, options=options)
        assert [each["name"] for each in line["params"]["options"]] == ["Yes", "Always", "o3"]
        ((_, asked),) = choose(talk, line, option)
        assert (asked["decision"], asked["option_id"]) == (decision, option)


def test_a_question_that_another_door_decides_is_withdrawn() -> None:
    talk = Talk()
    talk.open()
    line = ask(talk)
    talk.event("permission_decided", "r1", call_id="c1", decision="deny", by="ann")
    assert talk.told() == [withdrawn(line)]
    assert choose(talk, line, "allow") == []


def test_a_question_is_withdrawn_when_its_turn_ends_and_not_when_another_one_does() -> None:
    talk = Talk()
    talk.open()
    line = ask(talk)
    talk.event("done", "r2", reason="interrupted", text="")
    assert talk.told() == []
    talk.event("done", "r1", reason="timeout", text="")
    assert [each for each in talk.told() if each["method"] != "session/update"] == [withdrawn(line)]


def test_what_an_editor_answers_because_it_cancels_decides_nothing_about_calls_of_others() -> None:
    talk = Talk()
    talk.open()
    line = ask(talk, run="others-run")
    talk.notify("session/cancel", sessionId="acp-1")
    assert choose(talk, line, "cancelled") == []
    again = ask(talk, run="others-run", call={**CALL, "id": "c2"})
    assert len(choose(talk, again, "cancelled")) == 1


def test_a_long_call_is_fetched_whole_and_a_decision_to_allow_says_that_all_was_seen() -> None:
    talk = Talk()
    talk.open()
    talk.event(
        "permission_required", "r1", call=CALL, shown={"parts": [{"name": "command", "text": "abc"}], "hidden": 5}
    )
    asked = [("approvals.show", {"session": "acp-1", "call_id": "c1", "offset": 3})]
    assert talk.asked() == asked
    parts = [{"name": "command", "text": "de", "offset": 3}, {"name": "diff", "text": "+x `y`\n", "form": "diff"}]
    talk.answer({"page": {"parts": parts, "offset": 3, "hidden": 0, "seen": "token"}})
    line = question(talk)
    shown = [each["content"]["text"] for each in line["params"]["toolCall"]["content"]]
    assert shown == ["command: abcde", "diff:\n````diff\n+x `y`\n````"]
    ((_, allowed),) = choose(talk, line, "allow")
    assert allowed["seen"] == "token"


def test_a_call_that_is_longer_than_can_be_shown_can_only_be_rejected_here() -> None:
    talk = Talk()
    talk.open()
    talk.event("permission_required", "r1", call=CALL, shown={"parts": [{"name": "x", "text": "a"}], "hidden": 9})
    for offset in range(1, 64):
        assert talk.asked()[0][1]["offset"] == offset
        talk.answer({"page": {"parts": [{"name": "x", "text": "a", "offset": offset}], "offset": offset, "hidden": 9}})
    line = question(talk)
    assert [each["optionId"] for each in line["params"]["options"]] == ["reject"]
    assert choose(talk, line, "allow") == []


def test_a_call_that_is_decided_while_it_is_fetched_is_not_asked_about() -> None:
    talk = Talk()
    talk.open()
    talk.event("permission_required", "r1", call=CALL, shown={"parts": [], "hidden": 5})
    talk.event("permission_decided", "r1", call_id="c1", decision="allow")
    talk.answer({"page": {"parts": [], "offset": 0, "hidden": 0}})
    assert [line["method"] for line in talk.told()] == ["session/update"]


def test_what_waits_for_a_decision_when_a_session_is_opened_is_asked_after_the_answer() -> None:
    talk = Talk()
    talk.send("session/resume", sessionId="acp-1", cwd="/p")
    talk.answer({"session": "acp-1", "cwd": "/p", "head": 7, "pending": [{**CALL, "reason": "it removes"}]})
    talk.answer({"subscription": "s1"})
    assert "result" in talk.told()[0]
    assert talk.asked() == [("approvals.show", {"session": "acp-1", "call_id": "c1", "offset": 0})]
    talk.answer({"page": SHOWN})
    line = question(talk)
    talk.event("permission_required", "r1", call=CALL, shown=SHOWN)
    assert talk.told() == [], "it is asked once"
    talk.event("done", "queued", reason="interrupted", text="")
    assert talk.told() == [], "that one never had a worker"
    talk.event("done", "r1", reason="completed", text="", worker="w1")
    assert withdrawn(line) in talk.told()
