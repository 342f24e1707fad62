"""A supervisor that is not there, goes away, comes back, or cannot keep up with its own readers."""

import pytest

from tests.doors.acp.talk import OPENED, Talk, refusal, text

GONE = "no supervisor listens on /s; start one with: pool run"


def test_without_a_supervisor_a_request_is_answered_with_what_to_do_and_the_next_one_is_tried_again() -> None:
    talk = Talk()
    for _ in range(2):
        talk.send("session/new", cwd="/p", mcpServers=[])
        assert talk.asked() == [("sessions.open", {"cwd": "/p", "mcp_servers": []})]
        talk.lose(GONE)
        line = talk.answered()
        assert refusal(line) == (-32603, f"no_supervisor: {GONE}")
        assert line["error"]["data"] == {"code": "no_supervisor"}
    talk.send("session/new", cwd="/p", mcpServers=[])
    talk.machine.on_connected()
    talk.answer({**OPENED})
    talk.answer({"subscription": "s1"})
    assert "result" in talk.answered()


def test_every_open_request_is_answered_when_the_supervisor_goes_and_questions_are_withdrawn() -> None:
    talk = Talk()
    talk.open()
    running, run = talk.prompt()
    waiting, _ = talk.prompt(accepted=False)
    listing = talk.send("session/list")
    talk.event("permission_required", run, call={"id": "c1", "name": "exec"}, shown={"parts": []})
    question = talk.told()[-1]
    talk.lose(GONE)
    lines = talk.told()
    assert {line["id"] for line in lines if "error" in line} == {running, waiting, listing}
    assert {"method": "$/cancel_request", "params": {"requestId": question["id"]}} in lines
    assert len(lines) == 4
    talk.lose(GONE)
    assert talk.told() == []


def test_with_the_next_connection_sessions_are_followed_from_where_they_were_left() -> None:
    talk = Talk()
    talk.open()
    talk.event("text_chunk", "r1", delta="a")
    talk.updates()
    talk.lose(GONE)
    talk.send("session/prompt", sessionId="acp-1", prompt=[text("more")])
    talk.machine.on_connected()
    (prompt, opened) = talk.asked()
    assert prompt[0] == "agent"
    assert opened == ("sessions.open", {"session": "acp-1", "cwd": "/p", "exists": True, "mcp_servers": []})
    talk.answer({"status": "accepted"})
    talk.answer({**OPENED, "head": 500})
    ((method, asked),) = talk.asked()
    assert (method, asked["since"]) == ("subscribe", 101)
    talk.answer({"subscription": "s9"})
    talk.event("text_snapshot", "r1", text="b", subscription="s9")
    talk.event("done", prompt[1]["run"], reason="completed", text="", subscription="s9")
    update, answer = talk.told()
    assert update["params"]["update"]["content"]["text"] == "b"
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_session_that_is_gone_when_the_supervisor_is_back_is_open_no_longer() -> None:
    talk = Talk()
    talk.open()
    talk.lose(GONE)
    talk.send("session/list")
    talk.machine.on_connected()
    talk.answer([], method="sessions.list")
    talk.refuse("usage", "there is no session 'acp-1'", session="acp-1")
    talk.told()
    talk.send("session/prompt", sessionId="acp-1", prompt=[text("more")])
    assert talk.answered()["error"]["code"] == -32002


def test_a_connection_that_is_lost_again_on_the_way_back_is_tried_once_more() -> None:
    talk = Talk()
    talk.open()
    for _ in range(2):
        talk.lose(GONE)
        talk.send("session/list")
        talk.machine.on_connected()
        assert [method for method, _ in talk.asked()] == ["sessions.list", "sessions.open"]
    talk.answer([], method="sessions.list")
    talk.answer({**OPENED}, method="sessions.open")
    assert [method for method, _ in talk.asked()] == ["subscribe"]


@pytest.mark.parametrize(("reason", "since"), [("behind", 101), ("unreadable", None)])
def test_a_subscription_that_the_pool_ends_goes_on_and_ends_that_nothing_tells_are_asked_for(
    reason: str, since: int | None
) -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt()
    talk.event("text_chunk", run, delta="a")
    talk.updates()
    talk.push("subscription_ended", subscription="s1", bookmark=101, reason=reason)
    ((method, asked),) = talk.asked()
    assert (method, asked.get("since")) == ("subscribe", since)
    talk.answer({"subscription": "s2", "complete": False})
    wait = ("agent.wait", {"session": "acp-1", "run_id": run, "timeout_ms": 86_400_000})
    assert talk.asked() == [wait]
    talk.answer({"run_id": run, "session": "acp-1", "status": "timeout"})
    assert talk.asked() == [wait]
    talk.answer({"run_id": run, "session": "acp-1", "status": "ok", "reason": "completed"})
    assert talk.answered() == {"id": identity, "result": {"stopReason": "end_turn"}}


def test_a_run_whose_end_is_lost_and_that_the_pool_does_not_know_has_failed() -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt()
    talk.push("subscription_ended", subscription="s1", bookmark=101, reason="unreadable")
    talk.answer({"subscription": "s2", "complete": False})
    talk.refuse("usage", "there is no such run")
    line = talk.answered()
    assert (line["id"], refusal(line)) == (identity, (-32603, "there is no such run"))
    assert line["error"]["data"] == {"code": "usage", "run": run}


def test_the_end_of_the_supervisor_is_no_end_of_a_subscription() -> None:
    talk = Talk()
    talk.open()
    talk.push("subscription_ended", subscription="s1", bookmark=5, reason="closing")
    assert (talk.asked(), talk.told()) == ([], [])


def test_close_without_a_supervisor_is_answered_and_the_session_is_closed() -> None:
    talk = Talk()
    talk.open()
    talk.lose(GONE)
    closing = talk.send("session/close", sessionId="acp-1")
    assert talk.answered() == {"id": closing, "result": {}}
    assert not talk.machine.needs_pool


def test_events_that_come_before_their_subscription_is_answered_are_told_after_it() -> None:
    talk = Talk()
    identity = talk.send("session/resume", sessionId="acp-1", cwd="/p")
    talk.answer({**OPENED, "head": 7})
    talk.asked()
    talk.event("text_chunk", "r1", delta="a", subscription="s1")
    talk.answer({"subscription": "s1"})
    lines = talk.told()
    assert {line.get("id") for line in lines} == {identity, None}
    assert len(lines) == 2


def test_pushes_of_subscriptions_that_are_over_take_no_room_from_early_ones() -> None:
    talk = Talk()
    talk.open()
    for number in range(300):
        talk.push("subscription_ended", subscription=f"old{number}", bookmark=5, reason="unsubscribed")
    talk.send("session/resume", sessionId="acp-2", cwd="/p")
    talk.answer({**OPENED, "session": "acp-2"})
    talk.asked()
    talk.event("text_chunk", "r1", delta="a", subscription="s2")
    talk.answer({"subscription": "s2"})
    assert [line["method"] for line in talk.told() if "method" in line] == ["session/update"]


def test_a_session_that_is_closed_while_it_is_followed_again_leaves_no_subscription() -> None:
    talk = Talk()
    talk.open()
    talk.push("subscription_ended", subscription="s1", bookmark=7, reason="behind")
    talk.send("session/close", sessionId="acp-1")
    talk.answer({"subscription": "s2", "complete": True}, method="subscribe")
    assert ("unsubscribe", {"subscription": "s2"}) in talk.asked()


def test_a_session_that_cannot_be_followed_again_is_open_no_longer() -> None:
    talk = Talk()
    talk.open()
    identity, _run = talk.prompt()
    talk.push("subscription_ended", subscription="s1", bookmark=7, reason="behind")
    talk.refuse("saturated", "64 subscriptions are open on this connection")
    line = talk.answered()
    assert (line["id"], refusal(line)[0]) == (identity, -32603)
    talk.send("session/prompt", sessionId="acp-1", prompt=[text("more")])
    assert talk.answered()["error"]["code"] == -32002


def test_a_session_that_is_being_closed_hears_the_end_of_its_runs_also_when_it_is_behind() -> None:
    talk = Talk()
    talk.open()
    prompt, run = talk.prompt()
    closing = talk.send("session/close", sessionId="acp-1")
    talk.push("subscription_ended", subscription="s1", bookmark=7, reason="behind")
    talk.answer({"subscription": "s2", "complete": True}, method="subscribe")
    talk.event("done", run, reason="interrupted", text="", subscription="s2")
    assert [method for method, _ in talk.asked()] == ["unsubscribe"]
    talk.answer({}, method="unsubscribe")
    assert [line["id"] for line in talk.told()] == [prompt, closing]


def test_close_is_answered_also_where_a_prompt_is_never_accepted() -> None:
    for end in ("lost", "refused"):
        talk = Talk()
        talk.open()
        prompt, _run = talk.prompt(accepted=False)
        closing = talk.send("session/close", sessionId="acp-1")
        if end == "lost":
            talk.lose(GONE)
        else:
            talk.refuse("pool_closed", "closing")
            talk.answer({}, method="unsubscribe")
        assert {line["id"]: "result" in line for line in talk.told()} == {prompt: False, closing: True}
