"""When a run begins and when it is really over, and what is kept of it."""

import json
from typing import Any

import msgspec
import pytest

from rpc.pi.run_state import MAX_RUN_EVENTS
from rpc.pi.runs import RESTART_GRACE
from tests.rpc.pi.lines import RETRY, START, assistant, queue, sent
from tests.rpc.pi.replay import END, Replay, state

# --- begin ---


def test_a_run_is_on_from_the_prompt_to_its_settled_end(replay: Replay) -> None:
    assert not replay.is_running()
    replay.ask("a", "prompt", text="go")
    assert replay.is_running()
    replay.answer("prompt")
    replay.say(START, assistant("hi"), END)
    assert replay.is_running()
    replay.answer_questions()
    assert not replay.is_running()
    assert replay.told[-2:] == ["done stop", "a: stop 'hi'"]


@pytest.mark.parametrize(("costs", "told"), [((0.25, 0.5), {"cost": 0.75}), ((0, 0.5), {"cost": 0.5}), ((0, 0), {})])
def test_the_cost_of_a_run_is_that_of_its_calls_where_pi_knows_a_price(
    busy: Replay, costs: tuple[float, float], told: dict[str, float]
) -> None:
    for cost in costs:
        line = assistant("hi")
        line["message"]["usage"] = {"input": 1, "output": 2, "cost": {"total": cost}}
        busy.say(line)
    events = [json.loads(bytes(message.data)) for message in busy.messages if message.event == "token_usage"]
    usage = {"input_tokens": 2, "output_tokens": 4, **told}
    assert {name: events[-1][name] for name in events[-1] if name not in ("run_id", "seq")} == usage
    busy.say(END)
    busy.answer_questions()
    (result,) = [message.result for message in busy.messages if message.event is None and message.id == "a"]
    assert msgspec.json.decode(result)["usage"] == usage


def test_the_callers_run_id_is_on_every_event_of_the_run(busy: Replay) -> None:
    busy.say(
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": "x"}},
        {"type": "tool_execution_start", "toolCallId": "1", "toolName": "ls", "args": {}},
        assistant("hi"),
        END,
    )
    busy.answer_questions()
    events = [json.loads(bytes(message.data)) for message in busy.messages if message.event not in (None, "ready")]
    assert {event["run_id"] for event in events} == {"run"}


def test_a_second_prompt_is_never_sent_before_the_first_has_started(replay: Replay) -> None:
    replay.ask("a", "prompt", text="one")
    replay.ask("b", "prompt", text="two")
    replay.ask("c", "prompt", text="three", streaming_behavior="follow_up")
    replay.ask("d", "steer", text="four")
    assert replay.told == ["b: error busy"]
    assert sent(replay) == ["prompt"]
    replay.answer("prompt")
    assert sent(replay) == ["get_state"], "accepted is not started"
    replay.say(START)
    assert replay.last["message"] == "three"
    replay.say(queue(follow_up=("three",)), replay.answer_to("prompt"))
    assert replay.last["message"] == "four", "one at a time"


def test_a_command_of_an_extension_ends_without_a_run(replay: Replay) -> None:
    replay.ask("a", "prompt", text="/hello")
    replay.answer("prompt")
    replay.answer_questions()
    assert replay.told == ["a: stop ''"]
    assert not replay.is_running()


def test_a_command_of_an_extension_that_waits_for_its_own_run_ends_with_its_answer(replay: Replay) -> None:
    replay.ask("a", "prompt", text="/go")
    replay.say(START, assistant("hi"), END)
    assert sent(replay) == ["prompt"], "what the command does next is not known yet"
    replay.say(START, assistant("again"), END)
    replay.answer("prompt")
    replay.answer_questions()
    assert replay.told[-2:] == ["done stop", "a: stop 'again'"]
    assert not replay.is_running()


def test_a_command_of_an_extension_in_a_run_is_answered_when_it_is_done(busy: Replay) -> None:
    busy.ask("b", "prompt", text="/hello", streaming_behavior="steer")
    busy.answer("prompt")
    assert busy.told == ["b: stop ''"]
    busy.end()
    assert busy.told[1:] == ["done stop", "a: stop ''"]


def test_a_prompt_that_pi_refuses_ends_with_an_error_and_without_a_run(replay: Replay) -> None:
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt", error="No API key found")
    assert replay.told == ["a: error refused"]
    assert not replay.is_running()


def test_a_run_that_an_extension_starts_is_a_run_of_its_own(replay: Replay) -> None:
    replay.say(START)
    assert replay.is_running()
    replay.ask("a", "prompt", text="go")
    replay.end()
    assert replay.told == ["run_start r1", "a: error busy", "done stop"]


def test_a_prompt_that_meets_such_a_run_unseen_is_busy(replay: Replay) -> None:
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt", error="Agent is already processing. Specify streamingBehavior ('steer' or 'followUp')")
    replay.end(START)
    assert replay.told == ["a: error busy", "run_start r2", "done stop"]


def test_an_accepted_prompt_whose_start_is_late_is_waited_for(replay: Replay) -> None:
    replay.ask("a", "prompt", text="go")
    replay.answer("prompt")
    replay.answer("get_state", state(isStreaming=True))
    assert replay.told == []
    replay.wait(1.0)
    assert sent(replay) == ["get_state"], "asked again"
    replay.end(START, assistant("hi"))
    assert replay.told[-1] == "a: stop 'hi'"


# --- end ---


def test_a_newer_pi_says_itself_that_the_run_is_over(busy: Replay) -> None:
    busy.say(assistant("hi"), {**END, "willRetry": False}, {"type": "agent_settled"})
    assert busy.told[-2:] == ["done stop", "a: stop 'hi'"]


def test_a_newer_pi_says_itself_that_it_will_retry(busy: Replay) -> None:
    busy.say(assistant("", "error", "500"), {**END, "willRetry": True})
    busy.answer_questions()
    busy.say(START, assistant("hi"), {**END, "willRetry": False})
    busy.answer_questions()
    assert busy.told[-2:] == ["done stop", "a: stop 'hi'"]
    assert sum(line.startswith("run_start") for line in busy.told) == 0, "the run has begun once"


def test_an_answer_that_was_asked_for_before_a_retry_ends_nothing(busy: Replay) -> None:
    busy.say(assistant("", "error", "500"), END)
    assert sent(busy) == ["get_state"]
    busy.say(RETRY)
    busy.answer_questions()
    assert busy.is_running()


def test_a_retry_that_never_comes_ends_the_run_after_a_grace(busy: Replay) -> None:
    retry = RETRY
    busy.say(assistant("", "error", "500"), END, retry)
    busy.written.clear()
    busy.wait(2 + RESTART_GRACE - 0.1)
    assert sent(busy) == []
    busy.wait(0.2)
    busy.answer_questions()
    assert busy.told[-2:] == ["done error", "a: error '' (500)"]


@pytest.mark.parametrize("goes_on", [{"willRetry": True}, {"result": {"summary": "s"}}])
def test_a_compaction_after_a_run_may_continue_it(busy: Replay, goes_on: dict[str, Any]) -> None:
    """After an overflow pi retries; where texts wait in its queue it takes them."""
    busy.say(queue("later"), END, {"type": "compaction_start", "reason": "overflow"})
    busy.answer_questions()
    assert busy.is_running()
    busy.say({"type": "compaction_end", "reason": "overflow", **goes_on})
    busy.answer_questions()
    assert busy.is_running()
    busy.end(START, queue(), assistant("went on"))
    assert busy.told[-2:] == ["done stop", "a: stop 'went on'"]


def test_a_run_is_over_only_after_the_compaction_that_follows_it(busy: Replay) -> None:
    busy.say(assistant("hi"), END, {"type": "compaction_start", "reason": "threshold"})
    busy.answer_questions(isCompacting=True)
    assert busy.is_running()
    busy.say({"type": "compaction_end", "reason": "threshold", "result": {"summary": "s"}})
    busy.answer_questions()
    assert busy.told[-1] == "a: stop 'hi'"


@pytest.mark.parametrize(
    ("stop_reason", "told"), [("stop", "stop"), ("length", "length"), ("error", "error"), ("aborted", "aborted")]
)
def test_why_a_run_stopped_is_told_in_native_words(busy: Replay, stop_reason: str, told: str) -> None:
    busy.end(assistant("text", stop_reason, "why" if stop_reason == "error" else None))
    assert busy.told[-1].startswith(f"a: {told} 'text'")
    assert ("(why)" in busy.told[-1]) == (stop_reason == "error")


# --- what is kept ---


def test_a_message_update_of_a_megabyte_leads_to_its_new_piece_alone(busy: Replay) -> None:
    text = "x" * 500_000
    update = {"type": "text_delta", "contentIndex": 0, "delta": "new", "partial": {"content": text}}
    busy.say({"type": "message_update", "assistantMessageEvent": update, "message": {"content": text}})
    assert busy.told == ["assistant_message new"]
    assert len(busy.messages[-1].data.copy()) < 100


def test_the_events_in_a_result_are_bounded(busy: Replay) -> None:
    for number in range(MAX_RUN_EVENTS):
        call = {"toolCallId": str(number), "toolName": "ls"}
        busy.say({"type": "tool_execution_start", **call}, {"type": "tool_execution_end", **call, "result": None})
    busy.end()
    assert len(json.loads(bytes(busy.messages[-1].result))["events"]) == MAX_RUN_EVENTS


def test_a_failed_tool_shows_the_end_of_its_output_and_ends_with_its_result(busy: Replay) -> None:
    output = {"content": [{"type": "text", "text": "a" * 5000 + "z"}, {"type": "image", "data": "AAAA"}]}
    busy.say({"type": "tool_execution_end", "toolCallId": "1", "toolName": "ls", "result": output, "isError": True})
    error, executed, end = (json.loads(bytes(message.data)) for message in busy.messages[-3:])
    assert (error["phase"], error["error"]) == ("error", "a" * 1999 + "z")
    assert executed["call"]["state"] == end["call"]["state"] == "FAILED"
    assert (end["phase"], end["result"]) == ("end", "a" * 5000 + "z")


def test_half_a_surrogate_pair_in_a_text_costs_one_character(busy: Replay) -> None:
    message = '{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"cut \\ud83d here"}]}'
    busy.end('{"type":"message_end","message":' + message + "}")
    assert busy.told[-1] == "a: stop 'cut \N{REPLACEMENT CHARACTER} here'"
