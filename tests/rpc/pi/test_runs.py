"""When a run begins and when it is really over, and what is kept of it."""

import json
from typing import Any

import pytest

from rpc.pi.run_state import MAX_RUN_EVENTS
from rpc.pi.runs import RESTART_GRACE
from tests.rpc.pi.lines import END, START, assistant, in_a_run, queue, sent
from tests.rpc.pi.replay import Replay, state

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


def test_a_command_of_an_extension_that_waits_for_its_own_run_ends_with_its_answer() -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="/go")
    replay.say(START, assistant("hi"), END)
    assert sent(replay) == ["prompt"], "what the command does next is not known yet"
    replay.say(START, assistant("again"), END)
    replay.answer("prompt")
    replay.answer_questions()
    assert replay.told[-2:] == ["done stop", "a: stop 'again'"]
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


def test_a_failed_tool_shows_the_end_of_its_output_and_ends_with_its_result() -> None:
    replay = in_a_run()
    output = {"content": [{"type": "text", "text": "a" * 5000 + "z"}, {"type": "image", "data": "AAAA"}]}
    replay.say({"type": "tool_execution_end", "toolCallId": "1", "toolName": "ls", "result": output, "isError": True})
    error, executed, end = (json.loads(bytes(message.data)) for message in replay.messages[-3:])
    assert (error["phase"], error["error"]) == ("error", "a" * 1999 + "z")
    assert executed["call"]["state"] == end["call"]["state"] == "FAILED"
    assert (end["phase"], end["result"]) == ("end", "a" * 5000 + "z")


def test_half_a_surrogate_pair_in_a_text_costs_one_character() -> None:
    replay = in_a_run()
    message = '{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"cut \\ud83d here"}]}'
    replay.say('{"type":"message_end","message":' + message + "}", END)
    replay.answer_questions()
    assert replay.told[-1] == "a: stop 'cut \N{REPLACEMENT CHARACTER} here'"
