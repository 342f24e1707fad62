"""When a run begins and when it is really over; who may join it; what an abort leaves behind."""

import json
from typing import Any

import pytest

from rpc.pi.run import MAX_RUN_EVENTS
from rpc.pi.runs import MAX_HELD, RESTART_GRACE
from rpc.settings import RpcSettings
from tests.rpc.pi.replay import Replay, state

START: dict[str, Any] = {"type": "agent_start"}
END: dict[str, Any] = {"type": "agent_end", "messages": []}


def assistant(text: str, stop_reason: str = "stop", error: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop_reason}
    return {"type": "message_end", "message": {**message, "errorMessage": error} if error else message}


def queue(*steering: str, follow_up: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "queue_update", "steering": list(steering), "followUp": list(follow_up)}


def in_a_run(settings: RpcSettings | None = None) -> Replay:
    replay = Replay(settings)
    replay.ask("a", "prompt", text="go", run_id="run")
    replay.answer("prompt")
    replay.say(START)
    replay.answer_questions()
    assert replay.told == ["run_start run"]
    replay.told.clear()
    return replay


def sent(replay: Replay) -> list[str]:
    return [command["type"] for command in replay.written]


# --- begin ---


def test_a_run_is_on_from_the_prompt_to_its_settled_end() -> None:
    replay = Replay()
    assert not replay.is_running()
    replay.ask("a", "prompt", text="go")
    assert replay.is_running()
    replay.answer("prompt")
    replay.say(START, assistant("hi"), END)
    assert replay.is_running()
    replay.answer_questions()
    assert not replay.is_running()
    assert replay.told[-2:] == ["done stop", "a: stop 'hi'"]


def test_the_callers_run_id_is_on_every_event_of_the_run() -> None:
    replay = in_a_run()
    replay.say(
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": "x"}},
        {"type": "tool_execution_start", "toolCallId": "1", "toolName": "ls", "args": {}},
        assistant("hi"),
        END,
    )
    replay.answer_questions()
    events = [json.loads(bytes(message.data)) for message in replay.messages if message.event not in (None, "ready")]
    assert {event["run_id"] for event in events} == {"run"}


def test_a_second_prompt_is_never_sent_before_the_first_has_started() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="one")
    replay.ask("b", "prompt", text="two")
    replay.ask("c", "prompt", text="three", streaming_behavior="follow_up")
    replay.ask("d", "steer", text="four")
    assert replay.told == ["b: error busy"]
    assert sent(replay) == ["prompt"]
    replay.answer("prompt")
    assert sent(replay) == ["get_state"], "accepted is not started"
    replay.say(START)
    assert json.loads(replay.lines[-1])["message"] == "three"
    replay.say(queue(follow_up=("three",)), replay.answer_to("prompt"))
    assert json.loads(replay.lines[-1])["message"] == "four", "one at a time"


def test_a_command_of_an_extension_ends_without_a_run() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="/hello")
    replay.answer("prompt")
    replay.answer_questions()
    assert replay.told == ["a: stop ''"]
    assert not replay.is_running()


def test_a_command_of_an_extension_in_a_run_is_answered_when_it_is_done() -> None:
    replay = in_a_run()
    replay.ask("b", "prompt", text="/hello", streaming_behavior="steer")
    replay.answer("prompt")
    assert replay.told == ["b: stop ''"]
    replay.say(END)
    replay.answer_questions()
    assert replay.told[1:] == ["done stop", "a: stop ''"]


def test_a_prompt_that_pi_refuses_ends_with_an_error_and_without_a_run() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt", error="No API key found")
    assert replay.told == ["a: error refused"]
    assert not replay.is_running()


def test_a_run_that_an_extension_starts_is_a_run_of_its_own() -> None:
    replay = Replay()
    replay.say(START)
    assert replay.is_running()
    replay.ask("a", "prompt", text="go")
    replay.say(END)
    replay.answer_questions()
    assert replay.told == ["run_start r1", "a: error busy", "done stop"]


def test_a_prompt_that_meets_such_a_run_unseen_is_busy() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt", error="Agent is already processing. Specify streamingBehavior ('steer' or 'followUp')")
    replay.say(START, END)
    replay.answer_questions()
    assert replay.told == ["a: error busy", "run_start r2", "done stop"]


def test_an_accepted_prompt_whose_start_is_late_is_waited_for() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt")
    replay.answer("get_state", state(isStreaming=True))
    assert replay.told == []
    replay.wait(1.0)
    assert sent(replay) == ["get_state"], "asked again"
    replay.say(START, assistant("hi"), END)
    replay.answer_questions()
    assert replay.told[-1] == "a: stop 'hi'"


# --- end ---


def test_a_newer_pi_says_itself_that_the_run_is_over() -> None:
    replay = in_a_run()
    replay.say(assistant("hi"), {**END, "willRetry": False}, {"type": "agent_settled"})
    assert replay.told[-2:] == ["done stop", "a: stop 'hi'"]


def test_a_newer_pi_says_itself_that_it_will_retry() -> None:
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), {**END, "willRetry": True})
    replay.answer_questions()
    replay.say(START, assistant("hi"), {**END, "willRetry": False})
    replay.answer_questions()
    assert replay.told[-2:] == ["done stop", "a: stop 'hi'"]
    assert sum(line.startswith("run_start") for line in replay.told) == 0, "the run has begun once"


def test_an_answer_that_was_asked_for_before_a_retry_ends_nothing() -> None:
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), END)
    assert sent(replay) == ["get_state"]
    replay.say({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"})
    replay.answer_questions()
    assert replay.is_running()


def test_a_retry_that_never_comes_ends_the_run_after_a_grace() -> None:
    replay = in_a_run()
    retry = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"}
    replay.say(assistant("", "error", "500"), END, retry)
    replay.written.clear()
    replay.wait(2 + RESTART_GRACE - 0.1)
    assert sent(replay) == []
    replay.wait(0.2)
    replay.answer_questions()
    assert replay.told[-2:] == ["done error", "a: error '' (500)"]


@pytest.mark.parametrize("goes_on", [{"willRetry": True}, {"result": {"summary": "s"}}])
def test_a_compaction_after_a_run_may_continue_it(goes_on: dict[str, Any]) -> None:
    """After an overflow pi retries; where texts wait in its queue it takes them."""
    replay = in_a_run()
    replay.say(queue("later"), END, {"type": "compaction_start", "reason": "overflow"})
    replay.answer_questions()
    assert replay.is_running()
    replay.say({"type": "compaction_end", "reason": "overflow", **goes_on})
    replay.answer_questions()
    assert replay.is_running()
    replay.say(START, queue(), assistant("went on"), END)
    replay.answer_questions()
    assert replay.told[-2:] == ["done stop", "a: stop 'went on'"]


def test_a_run_is_over_only_after_the_compaction_that_follows_it() -> None:
    replay = in_a_run()
    replay.say(assistant("hi"), END, {"type": "compaction_start", "reason": "threshold"})
    replay.answer_questions(isCompacting=True)
    assert replay.is_running()
    replay.say({"type": "compaction_end", "reason": "threshold", "result": {"summary": "s"}})
    replay.answer_questions()
    assert replay.told[-1] == "a: stop 'hi'"


@pytest.mark.parametrize(
    ("stop_reason", "told"), [("stop", "stop"), ("length", "length"), ("error", "error"), ("aborted", "aborted")]
)
def test_why_a_run_stopped_is_told_in_native_words(stop_reason: str, told: str) -> None:
    replay = in_a_run()
    replay.say(assistant("text", stop_reason, "why" if stop_reason == "error" else None), END)
    replay.answer_questions()
    assert replay.told[-1].startswith(f"a: {told} 'text'")
    assert ("(why)" in replay.told[-1]) == (stop_reason == "error")


# --- what is kept ---


def test_a_message_update_of_a_megabyte_leads_to_its_new_piece_alone() -> None:
    replay = in_a_run()
    text = "x" * 500_000
    update = {"type": "text_delta", "contentIndex": 0, "delta": "new", "partial": {"content": text}}
    replay.say({"type": "message_update", "assistantMessageEvent": update, "message": {"content": text}})
    assert replay.told == ["assistant_message new"]
    assert len(replay.messages[-1].data.copy()) < 100


def test_the_events_in_a_result_are_bounded() -> None:
    replay = in_a_run()
    for number in range(MAX_RUN_EVENTS):
        call = {"toolCallId": str(number), "toolName": "ls"}
        replay.say({"type": "tool_execution_start", **call}, {"type": "tool_execution_end", **call, "result": None})
    replay.say(END)
    replay.answer_questions()
    assert len(json.loads(bytes(replay.messages[-1].result))["events"]) == MAX_RUN_EVENTS


def test_a_tool_shows_the_end_of_its_output() -> None:
    replay = in_a_run()
    output = {"content": [{"type": "text", "text": "a" * 5000 + "z"}, {"type": "image", "data": "AAAA"}]}
    replay.say({"type": "tool_execution_end", "toolCallId": "1", "toolName": "ls", "result": output, "isError": True})
    data = json.loads(bytes(replay.messages[-1].data))
    assert data["tail"] == data["error"] == "a" * 1999 + "z"
    assert data["phase"] == "error"


def test_half_a_surrogate_pair_in_a_text_costs_one_character() -> None:
    replay = in_a_run()
    message = '{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"cut \\ud83d here"}]}'
    replay.say('{"type":"message_end","message":' + message + "}", END)
    replay.answer_questions()
    assert replay.told[-1] == "a: stop 'cut \N{REPLACEMENT CHARACTER} here'"


# --- joining ---


def test_a_steer_without_a_run_is_refused_and_not_left_for_the_next_prompt() -> None:
    replay = Replay()
    replay.ask("a", "steer", text="x")
    replay.ask("b", "follow_up", text="y")
    assert replay.told == ["a: error idle", "b: error idle"]
    assert len(replay.lines) == 1


def test_a_steer_that_comes_just_after_the_end_continues_the_run() -> None:
    replay = in_a_run()
    replay.ask("b", "steer", text="late")
    replay.say(assistant("one"), END)
    assert sent(replay) == ["prompt"], "its answer says how it goes on"
    replay.answer("prompt")
    replay.say(START, assistant("two"), END)
    replay.answer_questions()
    assert replay.told[-3:] == ["tokens 0 0", "done stop", "a: stop 'two'"]
    assert "b: {}" in replay.told


def test_a_text_that_came_too_late_is_handed_over_before_the_next_one() -> None:
    """Pi would accept both and lose the second."""
    replay = in_a_run()
    replay.ask("b", "prompt", text="late", streaming_behavior="steer")
    replay.ask("c", "prompt", text="later", streaming_behavior="follow_up")
    replay.answer("prompt")  # not queued: pi is about to start, its end of the run is still to come
    assert sent(replay) == []
    replay.say(END)
    replay.answer("get_state", state(isStreaming=True))
    assert sent(replay) == []
    replay.say(START)
    assert json.loads(replay.lines[-1])["message"] == "later"
    replay.say(queue(follow_up=("later",)), replay.answer_to("prompt"), queue(), assistant("all"), END)
    replay.answer_questions()
    assert replay.told[-4:] == ["done stop", "a: stop 'all'", "b: stop 'all'", "c: stop 'all'"]


def test_texts_that_wait_for_a_retry_are_sent_when_it_starts() -> None:
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), END)
    replay.say({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"})
    replay.ask("b", "steer", text="x")
    assert "prompt" not in sent(replay)
    replay.say(START)
    assert json.loads(replay.lines[-1])["message"] == "x"


def test_a_text_that_waits_when_the_run_ends_continues_it() -> None:
    replay = in_a_run()
    replay.say(assistant("one"), END)
    replay.ask("b", "prompt", text="two", streaming_behavior="follow_up")
    replay.answer_questions()
    assert json.loads(replay.lines[-1])["message"] == "two"
    replay.answer("prompt")
    replay.say(START, assistant("second"), END)
    replay.answer_questions()
    assert replay.told[-2:] == ["a: stop 'second'", "b: stop 'second'"]


def test_a_steer_that_pi_refuses_leaves_the_run_alone() -> None:
    replay = in_a_run()
    replay.ask("b", "steer", text="x")
    replay.say(END)
    replay.answer("prompt", error="no")
    replay.answer_questions()
    assert replay.told == ["b: error refused", "done stop", "a: stop ''"]


def test_the_texts_that_wait_are_bounded() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="go")
    for number in range(MAX_HELD + 1):
        replay.ask(f"s{number}", "steer", text="x")
    assert replay.told == [f"s{MAX_HELD}: error busy"]


# --- abort ---


def test_what_an_abort_leaves_in_the_queue_is_dropped_by_opening_the_transcript_anew() -> None:
    replay = in_a_run()
    replay.ask("b", "steer", text="left")
    replay.say(queue("left"), replay.answer_to("prompt"))
    replay.ask("c", "abort")
    replay.say(assistant("par", "aborted"), END, replay.answer_to("abort"))
    replay.answer("get_state", state())
    assert sent(replay) == ["get_state"], "the transcript's name"
    replay.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert json.loads(replay.lines[-1])["sessionPath"] == "/s.jsonl"
    assert replay.is_running(), "nobody may prompt yet"
    replay.answer("switch_session", {"cancelled": False})
    replay.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert replay.told[-4:] == ["queue [] []", "done aborted", "a: aborted 'par'", 'c: {"left_in_queue": 0}']


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_queue_that_cannot_be_dropped_is_told(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Without a transcript, or when an extension says no."""
    replay = in_a_run()
    replay.say(queue("left"))
    replay.ask("c", "abort")
    replay.say(END, replay.answer_to("abort"))
    replay.answer("get_state", state())
    if cancelled:
        replay.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
        replay.answer("switch_session", {"cancelled": True})
    else:
        replay.answer("get_state", state(messageCount=3))
    assert replay.told[-1] == 'c: {"left_in_queue": 1}'
    assert not replay.is_running()


def test_an_abort_that_keeps_the_queue_leaves_it_for_the_next_prompt() -> None:
    replay = in_a_run()
    replay.say(queue("kept"))
    replay.ask("c", "abort", keep_queue=True)
    replay.say(END, replay.answer_to("abort"))
    replay.answer_questions()
    assert replay.told[-1] == 'c: {"left_in_queue": 1}'
    assert sent(replay) == []


def test_texts_that_have_not_reached_pi_when_it_is_aborted_never_do() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="go")
    replay.ask("b", "steer", text="x")
    replay.ask("c", "prompt", text="y", streaming_behavior="follow_up")
    replay.ask("d", "abort")
    replay.ask("e", "steer", text="z")
    assert replay.told == ["b: error aborted", "e: error busy"]
    replay.answer("prompt")
    replay.say(START, assistant("", "aborted"), END, replay.answer_to("abort"))
    replay.answer_questions()
    assert replay.told[-4:] == ["done aborted", "a: aborted ''", "c: aborted ''", 'd: {"left_in_queue": 0}']


def test_a_run_that_starts_again_after_an_abort_is_aborted_again() -> None:
    """The abort may come between the wait before a retry and the retry."""
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), END)
    replay.say({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 1, "errorMessage": "500"})
    replay.ask("b", "abort")
    replay.answer("abort")
    replay.say(START)
    assert sent(replay)[-1] == "abort"
    replay.say(assistant("", "aborted"), END)
    replay.answer_questions()
    assert replay.told[-1] == 'b: {"left_in_queue": 0}'


def test_an_aborted_wait_before_a_retry_is_an_aborted_run() -> None:
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), END)
    replay.say({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 1000, "errorMessage": "500"})
    replay.ask("b", "abort")
    replay.say({"type": "auto_retry_end", "success": False, "attempt": 1, "finalError": "Retry cancelled"})
    replay.answer("abort")
    replay.answer_questions()
    assert replay.told[-3:] == ["done aborted", "a: aborted ''", 'b: {"left_in_queue": 0}']


def test_an_abort_ends_shell_commands_too() -> None:
    replay = Replay(allow_bash=True)
    replay.ask("a", "bash", command="sleep 100")
    replay.ask("b", "abort")
    assert sent(replay) == ["bash", "abort_bash", "abort"]
    replay.answer("abort_bash")
    replay.answer("bash", {"output": "", "cancelled": True, "truncated": False})
    replay.answer("abort")
    assert json.loads(replay.told[0].removeprefix("a: "))["cancelled"] is True
    assert replay.told[1] == 'b: {"left_in_queue": 0}'
