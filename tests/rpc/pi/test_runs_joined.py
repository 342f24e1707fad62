"""Who may join a run, and what an abort leaves behind."""

import json

import pytest

from rpc.passthrough import read_object
from rpc.pi.runs import MAX_WAITING_TEXTS
from tests.rpc.pi.lines import END, START, assistant, in_a_run, queue, sent
from tests.rpc.pi.replay import Replay, state

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


@pytest.mark.parametrize("behavior", [b"", b',"streamingBehavior":"steer"'])
def test_a_front_ends_prompt_before_a_retry_is_handed_on_at_once(behavior: bytes) -> None:
    """As pi takes it then: the run goes on with that prompt instead of the retry."""
    replay = in_a_run()
    replay.say(assistant("", "error", "500"), END)
    replay.say({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"})
    assert replay.dialect.is_streaming
    command = read_object(b'{"id":"own","type":"prompt","message":"x"' + behavior + b"}")
    (line,) = replay.dialect.forward("b", command, replay.now).outgoing
    answer = {"id": json.loads(line)["id"], "type": "response", "command": "prompt", "success": True}
    replay.say(answer)
    assert replay.told[-1] == "b: null"
    replay.say(START, assistant("instead"), END)
    replay.answer_questions()
    assert replay.told[-2:] == ["done stop", "a: stop 'instead'"]


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
    for number in range(MAX_WAITING_TEXTS + 1):
        replay.ask(f"s{number}", "steer", text="x")
    assert replay.told == [f"s{MAX_WAITING_TEXTS}: error busy"]


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


def test_a_pi_that_can_clear_its_queue_is_asked_to() -> None:
    replay = in_a_run()
    replay.say(queue("left"))
    replay.ask("c", "abort")
    replay.say(END, {"type": "agent_settled"}, replay.answer_to("abort"))
    replay.say(queue(), replay.answer_to("clear_queue", {"steering": ["left"], "followUp": []}))
    assert replay.told[-1] == 'c: {"left_in_queue": 0}'
    assert sent(replay) == []


def test_a_pi_that_settles_and_cannot_clear_its_queue_opens_the_transcript_anew() -> None:
    replay = in_a_run()
    replay.say(queue("left"))
    replay.ask("c", "abort")
    replay.say(END, {"type": "agent_settled"}, replay.answer_to("abort"))
    replay.answer("clear_queue", error="Unknown command: clear_queue")
    replay.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert sent(replay) == ["switch_session"]


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
