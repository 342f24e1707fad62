"""Who may join a run, and what an abort leaves behind."""

import json

import pytest

from rpc.passthrough import read_object
from rpc.pi.runs import MAX_WAITING_TEXTS
from tests.rpc.pi.lines import RETRY, START, assistant, in_a_run, queue, sent
from tests.rpc.pi.replay import END, Replay, state

# --- joining ---


def test_a_steer_without_a_run_is_refused_and_not_left_for_the_next_prompt(replay: Replay) -> None:
    replay.ask("a", "steer", text="x")
    replay.ask("b", "follow_up", text="y")
    assert replay.told == ["a: error idle", "b: error idle"]
    assert len(replay.lines) == 1


def test_a_steer_that_comes_just_after_the_end_continues_the_run(busy: Replay) -> None:
    busy.ask("b", "steer", text="late")
    busy.say(assistant("one"), END)
    assert sent(busy) == ["prompt"], "its answer says how it goes on"
    busy.answer("prompt")
    busy.end(START, assistant("two"))
    assert busy.told[-3:] == ["tokens 0 0", "done stop", "a: stop 'two'"]
    assert "b: {}" in busy.told


def test_a_text_that_came_too_late_is_handed_over_before_the_next_one(busy: Replay) -> None:
    """Pi would accept both and lose the second."""
    busy.ask("b", "prompt", text="late", streaming_behavior="steer")
    busy.ask("c", "prompt", text="later", streaming_behavior="follow_up")
    busy.answer("prompt")  # not queued: pi is about to start, its end of the run is still to come
    assert sent(busy) == []
    busy.say(END)
    busy.answer("get_state", state(isStreaming=True))
    assert sent(busy) == []
    busy.say(START)
    assert busy.last["message"] == "later"
    busy.end(queue(follow_up=("later",)), busy.answer_to("prompt"), queue(), assistant("all"))
    assert busy.told[-4:] == ["done stop", "a: stop 'all'", "b: stop 'all'", "c: stop 'all'"]


def test_texts_that_wait_for_a_retry_are_sent_when_it_starts(busy: Replay) -> None:
    busy.say(assistant("", "error", "500"), END)
    busy.say(RETRY)
    busy.ask("b", "steer", text="x")
    assert "prompt" not in sent(busy)
    busy.say(START)
    assert busy.last["message"] == "x"


@pytest.mark.parametrize("behavior", [b"", b',"streamingBehavior":"steer"'])
def test_a_front_ends_prompt_before_a_retry_is_handed_on_at_once(busy: Replay, behavior: bytes) -> None:
    """As pi takes it then: the run goes on with that prompt instead of the retry."""
    busy.say(assistant("", "error", "500"), END)
    busy.say(RETRY)
    assert busy.dialect.is_streaming
    command = read_object(b'{"id":"own","type":"prompt","message":"x"' + behavior + b"}")
    (line,) = busy.dialect.forward("b", command, busy.now).outgoing
    answer = {"id": json.loads(line)["id"], "type": "response", "command": "prompt", "success": True}
    busy.say(answer)
    assert busy.told[-1] == "b: null"
    busy.end(START, assistant("instead"))
    assert busy.told[-2:] == ["done stop", "a: stop 'instead'"]


def test_a_text_that_waits_when_the_run_ends_continues_it(busy: Replay) -> None:
    busy.say(assistant("one"), END)
    busy.ask("b", "prompt", text="two", streaming_behavior="follow_up")
    busy.answer_questions()
    assert busy.last["message"] == "two"
    busy.answer("prompt")
    busy.end(START, assistant("second"))
    assert busy.told[-2:] == ["a: stop 'second'", "b: stop 'second'"]


def test_a_steer_that_pi_refuses_leaves_the_run_alone(busy: Replay) -> None:
    busy.ask("b", "steer", text="x")
    busy.say(END)
    busy.answer("prompt", error="no")
    busy.answer_questions()
    assert busy.told == ["b: error refused", "done stop", "a: stop ''"]


def test_the_texts_that_wait_are_bounded(replay: Replay) -> None:
    replay.ask("a", "prompt", text="go")
    for number in range(MAX_WAITING_TEXTS + 1):
        replay.ask(f"s{number}", "steer", text="x")
    assert replay.told == [f"s{MAX_WAITING_TEXTS}: error busy"]


# --- abort ---


def test_what_an_abort_leaves_in_the_queue_is_dropped_by_opening_the_transcript_anew(busy: Replay) -> None:
    busy.ask("b", "steer", text="left")
    busy.say(queue("left"), busy.answer_to("prompt"))
    busy.ask("c", "abort")
    busy.say(assistant("par", "aborted"), END, busy.answer_to("abort"))
    busy.answer("get_state", state())
    assert sent(busy) == ["get_state"], "the transcript's name"
    busy.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert busy.last["sessionPath"] == "/s.jsonl"
    assert busy.is_running(), "no prompt is accepted yet"
    busy.answer("switch_session", {"cancelled": False})
    busy.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert busy.told[-4:] == ["queue [] []", "done aborted", "a: aborted 'par'", 'c: {"left_in_queue": 0}']


def test_a_pi_that_can_clear_its_queue_is_asked_to(busy: Replay) -> None:
    busy.say(queue("left"))
    busy.ask("c", "abort")
    busy.say(END, {"type": "agent_settled"}, busy.answer_to("abort"))
    busy.say(queue(), busy.answer_to("clear_queue", {"steering": ["left"], "followUp": []}))
    assert busy.told[-1] == 'c: {"left_in_queue": 0}'
    assert sent(busy) == []


def test_a_pi_that_settles_and_cannot_clear_its_queue_opens_the_transcript_anew(busy: Replay) -> None:
    busy.say(queue("left"))
    busy.ask("c", "abort")
    busy.say(END, {"type": "agent_settled"}, busy.answer_to("abort"))
    busy.answer("clear_queue", error="Unknown command: clear_queue")
    busy.answer("get_state", state(sessionFile="/s.jsonl", messageCount=3))
    assert sent(busy) == ["switch_session"]


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


def test_an_abort_that_keeps_the_queue_leaves_it_for_the_next_prompt(busy: Replay) -> None:
    busy.say(queue("kept"))
    busy.ask("c", "abort", keep_queue=True)
    busy.say(END, busy.answer_to("abort"))
    busy.answer_questions()
    assert busy.told[-1] == 'c: {"left_in_queue": 1}'
    assert sent(busy) == []


def test_texts_that_have_not_reached_pi_when_it_is_aborted_never_do(replay: Replay) -> None:
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


def test_a_run_that_starts_again_after_an_abort_is_aborted_again(busy: Replay) -> None:
    """The abort may come between the wait before a retry and the retry."""
    busy.say(assistant("", "error", "500"), END)
    busy.say(RETRY)
    busy.ask("b", "abort")
    busy.answer("abort")
    busy.say(START)
    assert sent(busy)[-1] == "abort"
    busy.end(assistant("", "aborted"))
    assert busy.told[-1] == 'b: {"left_in_queue": 0}'


def test_an_aborted_wait_before_a_retry_is_an_aborted_run(busy: Replay) -> None:
    busy.say(assistant("", "error", "500"), END)
    busy.say(RETRY)
    busy.ask("b", "abort")
    busy.say({"type": "auto_retry_end", "success": False, "attempt": 1, "finalError": "Retry cancelled"})
    busy.answer("abort")
    busy.answer_questions()
    assert busy.told[-3:] == ["done aborted", "a: aborted ''", 'b: {"left_in_queue": 0}']


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
