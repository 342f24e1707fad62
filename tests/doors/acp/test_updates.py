"""What an editor learns of the events of a session, by whatever door the run came."""

from typing import Any

from tests.doors.acp.talk import OPENED, Talk, text
from wire.events import EventType, display_line

ALL: dict[str, Any] = {"session": {"notices": {}, "compaction": {}}}


def call(identity: str = "c1", state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    return {"id": identity, "name": "exec", "input_preview": '{"command":"ls"}', "state": state, **more}


def kinds(updates: list[dict[str, Any]]) -> list[str]:
    return [update["sessionUpdate"] for update in updates]


def content(update: dict[str, Any]) -> str:
    (block,) = update["content"]
    assert block["type"] == "content"
    return str(block["content"]["text"])


def test_text_comes_in_pieces_whose_message_is_the_run_and_the_part() -> None:
    talk = Talk()
    talk.open()
    for kind, words in (("think_chunk", "hm"), ("text_chunk", "a"), ("text_chunk", 'b\n"c"')):
        talk.event(kind, "r1", delta=words)
    talk.event("tool:start", "r1", call=call())
    talk.event("text_chunk", "r1", delta="d")
    talk.event("text_snapshot", "r1", from_seq=1, to_seq=2, text="ef")
    talk.event("text_chunk", "r2", delta="g")
    chunks = [update for update in talk.updates() if update["sessionUpdate"].endswith("_chunk")]
    assert [(each["sessionUpdate"], each["messageId"], each["content"]["text"]) for each in chunks] == [
        ("agent_thought_chunk", "r1.1", "hm"),
        ("agent_message_chunk", "r1.2", "a"),
        ("agent_message_chunk", "r1.2", 'b\n"c"'),
        ("agent_message_chunk", "r1.3", "d"),
        ("agent_message_chunk", "r1.3", "ef"),
        ("agent_message_chunk", "r2.1", "g"),
    ]


def test_a_message_of_another_door_is_told_when_its_turn_starts_and_the_editors_own_is_not() -> None:
    talk = Talk()
    talk.open()
    _, own = talk.prompt()
    for run in (own, "r1", "r2"):
        talk.event("run:accepted", run, mode="followup", text=f"from {run}", truncated=run == "r2")
    assert talk.told() == []
    for run in ("r2", own, "r1"):
        talk.event("run:start", run, worker="w1")
    assert [(each["sessionUpdate"], each["messageId"], each["content"]) for each in talk.updates()] == [
        ("user_message_chunk", "r2.user", text("from r2…")),
        ("user_message_chunk", "r1.user", text("from r1")),
    ]


def test_a_quiet_run_has_no_message() -> None:
    talk = Talk()
    talk.open()
    talk.event("run:accepted", "beat", mode="followup")
    talk.event("run:start", "beat", worker="w1")
    talk.event("done", "beat", reason="completed", text="", silent=True)
    assert talk.told() == []


def test_an_answer_of_which_no_piece_came_is_told_as_a_whole_and_a_silent_one_is_not() -> None:
    talk = Talk()
    talk.open()
    talk.event("run:accepted", "r1", mode="followup", text="/status")
    talk.event("done", "r1", reason="completed", text="READY")
    assert [(each["sessionUpdate"], each["content"]["text"]) for each in talk.updates()] == [
        ("user_message_chunk", "/status"),
        ("agent_message_chunk", "READY"),
    ]
    talk.event("text_chunk", "r2", delta="all of it")
    talk.updates()
    talk.event("done", "r2", reason="completed", text="all of it")
    talk.event("done", "r3", reason="completed", text="NO_REPLY", silent=True)
    assert talk.told() == []


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_call_is_told_from_its_start_to_its_end() -> None:
    talk = Talk()
    talk.open()
    talk.event("tool:start", "r1", call=call(state="PENDING"))
    talk.event("tool:running", "r1", call=call())
    talk.event("tool:update", "r1", call=call(), tail="a\n")
    talk.event("tool:end", "r1", call=call(state="COMPLETED"), result="a\nb\n")
    start, running, update, end = talk.updates()
    assert start == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "title": "exec ls",
        "name": "exec",
        "kind": "execute",
        "rawInput": {"command": "ls"},
        "status": "pending",
    }
    assert kinds([running, update, end]) == ["tool_call_update"] * 3
    assert [each["status"] for each in (running, update, end)] == ["in_progress", "in_progress", "completed"]
    assert (content(update), content(end)) == ("a\n", "a\nb\n")


def test_a_failed_call_stays_failed_and_gets_what_the_model_reads_of_it() -> None:
    talk = Talk()
    talk.open()
    talk.event("tool:start", "r1", call=call())
    talk.event("tool:error", "r1", call=call(state="FAILED"), error="no such file")
    talk.event("tool:end", "r1", call=call(state="FAILED"), result="no such file\n(note)")
    *_, error, end = talk.updates()
    assert [(each["status"], content(each)) for each in (error, end)] == [
        ("failed", "no such file"),
        ("failed", "no such file\n(note)"),
    ]


def test_a_call_of_which_only_the_end_is_heard_is_told_as_a_whole() -> None:
    talk = Talk()
    talk.open()
    talk.event("tool:end", "r1", call=call("c7", "COMPLETED"), result="a")
    assert [(each["sessionUpdate"], each["toolCallId"]) for each in talk.updates()] == [
        ("tool_call", "c7"),
        ("tool_call_update", "c7"),
    ]


def test_calls_that_are_open_when_their_run_ends_have_failed() -> None:
    talk = Talk()
    talk.open()
    for identity in ("c1", "c2"):
        talk.event("tool:start", "r1", call=call(identity))
    talk.event("tool:end", "r1", call=call("c1", "COMPLETED"), result="a")
    talk.updates()
    talk.event("done", "r1", reason="interrupted", text="")
    (update,) = talk.updates()
    assert (update["toolCallId"], update["status"], content(update)) == ("c2", "failed", "no result")


def test_an_input_that_was_cut_is_shown_in_the_title_only() -> None:
    talk = Talk()
    talk.open()
    talk.event("tool:start", "r1", call={"id": "c1", "name": "write", "input_preview": '{"path":"x.py","content":"aaa'})
    (update,) = talk.updates()
    assert (update["kind"], update["title"], "rawInput" in update) == ("edit", "write x.py…", False)


def test_a_plan_is_told_whole() -> None:
    talk = Talk()
    talk.open()
    todos = [{"id": "1", "text": "look", "status": "completed"}, {"id": "2", "text": "leap"}]
    talk.event("todo_changed", "r1", todos=todos)
    assert talk.updates() == [
        {
            "sessionUpdate": "plan",
            "entries": [
                {"content": "look", "priority": "medium", "status": "completed"},
                {"content": "leap", "priority": "medium", "status": "pending"},
            ],
        }
    ]


def test_the_size_of_the_context_is_told_when_it_changes_and_at_once_to_an_editor_that_comes_later() -> None:
    talk = Talk()
    talk.open()
    talk.event("context_usage", "r1", used=120, size=1000)
    usage = {"sessionUpdate": "usage_update", "used": 120, "size": 1000}
    assert talk.updates() == [usage]
    later = Talk()
    later.send("session/resume", sessionId="acp-1", cwd="/p")
    later.answer({**OPENED, "context": {"used": 120, "size": 1000}})
    later.answer({"subscription": "s1"})
    update, answer = later.told()
    assert update["params"] == {"sessionId": "acp-1", "update": usage}
    assert "result" in answer


# --- what an editor must have asked for -------------------------------------------------------------------------------


def beside(talk: Talk) -> list[dict[str, Any]]:
    talk.open()
    talk.event("compaction:start", "r1", reason="threshold")
    talk.event("compaction:end", "r1")
    talk.event("compaction:start", "r1")
    talk.event("compaction:end", "r1", error="too long")
    talk.event("compaction:start", "r1")
    talk.event("compaction:end", "r1", aborted=True)
    talk.event("error", "r1", severity="warn", phase="system", message="slow\nvery slow")
    talk.event("agent_resumed", strategy="loaded")
    talk.event("agent_resumed", strategy="refed")
    talk.event("alert", text="the build is red")
    return talk.updates()


def test_notices_and_compactions_are_told_to_those_who_take_them_only() -> None:
    assert beside(Talk()) == []
    updates = beside(Talk(ALL))
    compactions = [each for each in updates if each["sessionUpdate"] == "compaction_update"]
    assert [(each["compactionId"], each["status"]) for each in compactions] == [
        *(("acp-1.1", "in_progress"), ("acp-1.1", "completed")),
        *(("acp-1.2", "in_progress"), ("acp-1.2", "failed")),
        *(("acp-1.3", "in_progress"), ("acp-1.3", "cancelled")),
    ]
    notices = [each for each in updates if each["sessionUpdate"] == "notice"]
    assert [(each["severity"], each["title"], each.get("description")) for each in notices] == [
        ("warning", "slow", "very slow"),
        ("warning", display_line(EventType.AGENT_RESUMED.display, {"strategy": "refed"}), None),
        ("info", "the build is red", None),
    ]


def test_events_of_a_newer_supervisor_are_passed_over_and_those_after_them_are_told() -> None:
    talk = Talk()
    talk.open()
    talk.event("tool:start", "r1", call=5)
    talk.event("unheard-of", "r1", x=1)
    talk.event("done", "r1", reason=5)
    talk.event("text_chunk", "r1", delta="a")
    assert kinds(talk.updates()) == ["agent_message_chunk"]


def test_sessions_are_kept_apart() -> None:
    talk = Talk()
    talk.open()
    talk.open("acp-2", "s2")
    talk.event("text_chunk", "r1", delta="a", subscription="s2")
    talk.event("text_chunk", "r1", delta="b", subscription="s9")
    (line,) = talk.told()
    assert line["params"]["sessionId"] == "acp-2"
