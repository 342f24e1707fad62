"""Prompts of an editor: what the agent is sent, how they end, are cancelled and steered."""

from typing import Any

import pytest

from tests.doors.acp.talk import Talk, refusal, text


def send(talk: Talk, *blocks: dict[str, Any], method: str = "session/prompt") -> int:
    return talk.send(method, sessionId="acp-1", prompt=list(blocks))


# --- content ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_a_run_of_its_own_under_a_key_of_this_process() -> None:
    talk = Talk()
    talk.open()
    identity = send(talk, text("hello"))
    run = f"att.1.{identity}"
    assert talk.asked() == [("agent", {"session": "acp-1", "text": "hello", "run": run, "queue": "followup"})]


def test_links_stand_where_they_were_and_embedded_files_at_the_end() -> None:
    talk = Talk()
    talk.open()
    send(
        talk,
        text("compare "),
        {"type": "resource_link", "uri": "file:///p/a%20b.py#L3", "name": "a b.py"},
        text(" with "),
        {"type": "resource", "resource": {"uri": "file:///p/c.py", "text": "print()"}},
        text(" and "),
        {"type": "resource_link", "uri": "https://x.example/d", "name": "d"},
        {"type": "resource", "resource": {"uri": "zed:///thread/1", "text": "said", "mimeType": 5}},
    )
    ((_, asked),) = talk.asked()
    assert asked["text"] == (
        "compare /p/a b.py#L3 with /p/c.py and [d](https://x.example/d)zed:///thread/1\n\n"
        '<context uri="file:///p/c.py">\nprint()\n</context>\n\n'
        '<context uri="zed:///thread/1">\nsaid\n</context>'
    )


def test_images_go_along_also_those_of_embedded_resources() -> None:
    talk = Talk()
    talk.open()
    send(
        talk,
        {"type": "image", "data": "AA==", "mimeType": "image/gif"},
        {"type": "image", "data": "", "uri": "file:///p/x.png"},
        {"type": "resource", "resource": {"uri": "file:///p/y.png", "blob": "BB==", "mimeType": "image/png"}},
        {"type": "resource", "resource": {"uri": "file:///p/z.bin", "blob": "CC=="}},
    )
    ((_, asked),) = talk.asked()
    assert asked["images"] == [{"data": "AA==", "mimeType": "image/gif"}, {"data": "BB==", "mimeType": "image/png"}]
    assert asked["text"] == "/p/x.png/p/y.png/p/z.bin"


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, "params.prompt[1].type: audio is not taken"),
        ({"type": "video"}, "params.prompt[1].type: unknown type 'video'"),
        ({"type": "text"}, "params.prompt[1].type: a block of type text lacks"),
        ({"type": "resource", "resource": {"uri": "x"}}, "params.prompt[1].type: a block of type resource lacks"),
        ({"type": "resource_link", "name": "x"}, "params.prompt[1].type: a block of type resource_link lacks"),
        ({"type": "resource_link", "uri": "http://[", "name": "x"}, "params.prompt[1]."),
    ],
)
def test_a_block_that_cannot_be_passed_on_is_named(block: dict[str, Any], named: str) -> None:
    talk = Talk()
    talk.open()
    send(talk, text("hi"), block)
    code, words = refusal(talk.answered())
    assert (code, words.startswith(named)) == (-32602, True), words
    assert talk.asked() == []


def test_an_empty_prompt_too_many_images_and_one_that_is_too_large_are_refused() -> None:
    talk = Talk()
    talk.open()
    for blocks in ([text("  \n")], [{"type": "image", "data": "A"}] * 33, [text("x" * 8_400_000)]):
        send(talk, *blocks)
        assert talk.answered()["error"]["code"] == -32602
    assert talk.asked() == []
    send(talk, {"type": "image", "data": "A"})
    assert talk.asked()[0][1]["text"] == ""


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "stop"),
    [
        ({"reason": "completed"}, "end_turn"),
        ({"reason": "tool_calls"}, "end_turn"),
        ({"reason": "interrupted", "error": {"code": "aborted", "message": "x"}}, "cancelled"),
        ({"reason": "length"}, "max_tokens"),
        ({"reason": "length", "stop_reason": "max_steps"}, "max_turn_requests"),
        ({"reason": "error", "error": {"code": "refusal", "message": "no"}}, "refusal"),
    ],
)
def test_the_end_of_a_run_is_the_answer_to_its_prompt_after_its_updates(done: dict[str, Any], stop: str) -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt()
    talk.event("text_chunk", run, delta="hi")
    assert len(talk.updates()) == 1
    talk.event("done", "other", reason="completed", text="")
    assert talk.told() == []
    talk.event("done", run, text="hi", **done)
    assert talk.answered() == {"id": identity, "result": {"stopReason": stop}}
    talk.event("done", run, text="", **done)
    assert talk.told() == [], "each is answered once"


@pytest.mark.parametrize(
    ("done", "data"),
    [
        (
            {"reason": "timeout", "error": {"code": "request_timeout", "message": "too late"}},
            {"code": "request_timeout"},
        ),
        (
            {"reason": "error", "error": {"code": "saturated", "message": "full", "data": {"retry_after": 2.5}}},
            {"code": "saturated", "retry_after": 2.5},
        ),
        ({"reason": "error", "error": {"code": "usage", "message": "bad"}}, {"code": "usage"}),
        ({"reason": "error"}, {"code": "error"}),
    ],
)
def test_a_run_that_failed_is_an_error_with_its_code_and_its_run(done: dict[str, Any], data: dict[str, Any]) -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt()
    talk.event("done", run, text="", **done)
    line = talk.answered()
    assert (line["id"], line["error"]["code"]) == (identity, -32603)
    assert line["error"]["data"] == {**data, "run": run}


def test_a_prompt_that_is_not_accepted_is_answered_with_why() -> None:
    talk = Talk()
    talk.open()
    talk.prompt(accepted=False)
    talk.refuse("pool_closed", "the supervisor is shutting down")
    line = talk.answered()
    assert (refusal(line), line["error"]["data"]["code"]) == (
        (-32603, "the supervisor is shutting down"),
        "pool_closed",
    )


def test_an_end_that_comes_before_the_acceptance_counts() -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt("/status", accepted=False)
    talk.event("done", run, reason="completed", text="Session acp-1: READY")
    (update,) = talk.updates()
    assert update["content"] == text("Session acp-1: READY")
    talk.answer({"status": "accepted"})
    assert talk.answered() == {"id": identity, "result": {"stopReason": "end_turn"}}


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_aborts_the_editors_runs_of_the_session_queued_or_running_and_no_other() -> None:
    talk = Talk()
    talk.open()
    talk.open("acp-2", "s2")
    runs = [talk.prompt()[1] for _ in range(2)]
    talk.prompt(session="acp-2")
    talk.event("run:start", "others-run", worker="w1")
    talk.notify("session/cancel", sessionId="acp-1")
    assert talk.asked() == [("abort", {"session": "acp-1", "run": run}) for run in runs]
    assert talk.told() == []


def test_a_cancel_that_comes_before_the_acceptance_waits_for_it() -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt(accepted=False)
    talk.notify("session/cancel", sessionId="acp-1")
    assert talk.asked() == []
    talk.answer({"status": "accepted"})
    assert talk.asked() == [("abort", {"session": "acp-1", "run": run})]
    talk.answer({"aborted": True})
    talk.event("done", run, reason="interrupted", text="")
    assert talk.answered() == {"id": identity, "result": {"stopReason": "cancelled"}}


def test_a_request_is_cancelled_by_its_id_and_ids_of_other_types_are_others() -> None:
    talk = Talk()
    talk.open()
    identity, run = talk.prompt()
    talk.notify("$/cancel_request", requestId=str(identity))
    assert talk.asked() == []
    talk.notify("$/cancel_request", requestId=identity)
    assert talk.asked() == [("abort", {"session": "acp-1", "run": run})]


def test_without_a_prompt_a_cancel_does_nothing() -> None:
    talk = Talk()
    talk.open()
    talk.notify("session/cancel", sessionId="acp-1")
    assert (talk.asked(), talk.told()) == ([], [])


# --- steering ---------------------------------------------------------------------------------------------------------


def test_a_steer_goes_into_the_running_turn_and_says_whether_one_took_it() -> None:
    talk = Talk()
    talk.open()
    identity = send(talk, text("left"), method="_session/steering")
    assert talk.asked() == [("steer", {"session": "acp-1", "text": "left", "run": f"att.1.{identity}"})]
    talk.answer({"status": "accepted"})
    assert talk.answered() == {"id": identity, "result": {"outcome": "injected"}}
    send(talk, text("right"), method="_session/steering")
    talk.refuse("conflict", "no turn of session acp-1 takes messages now; send it as a run", session="acp-1")
    assert talk.answered()["result"] == {"outcome": "promptRequired"}
    send(talk, text("right"), method="_session/steering")
    talk.refuse("pool_closed", "closing")
    assert talk.answered()["error"]["code"] == -32603
    send(talk, text("see"), {"type": "image", "data": "A"}, method="_session/steering")
    assert talk.answered()["result"] == {"outcome": "promptRequired"}
    assert talk.asked() == []
