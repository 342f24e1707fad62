"""Changing, resuming and shortening a session: never in a run, never without looking, never with other settings."""

import json
from typing import Any

import pytest

from rpc.settings import RpcSettings
from tests.rpc.pi.lines import START, assistant, in_a_run, queue, sent
from tests.rpc.pi.replay import END, Replay, load, state
from wire.units import Seconds

OLD = "/golden/sess8/2026-11-21T02-55-57-954Z_01a1fc08-3201-75f3-94d8-e3b0580a3885.jsonl"
SESSIONS: list[tuple[str, dict[str, Any], str]] = [
    ("new_session", {}, "new_session"),
    ("switch_session", {"session_file": OLD}, "switch_session"),
    ("compact", {}, "compact"),
]


def recorded_state(request_id: str) -> Any:
    """What the recorded pi held after each switch."""
    for record in load("switch_session"):
        if record.to == "out" and record.line.startswith(f'{{"id":"{request_id}"'):
            return json.loads(record.line)["data"]
    pytest.fail(f"no {request_id} in the recording")


@pytest.mark.parametrize("file", ["/new.jsonl", None], ids=["with a transcript", "without one"])
def test_a_new_session_is_named(replay: Replay, file: str | None) -> None:
    replay.ask("a", "new_session")
    replay.change_session("new_session", sessionId="new", sessionFile=file)
    assert replay.told == [f'a: {{"session_file": {json.dumps(file)}, "session_id": "new"}}']


def test_a_pi_that_keeps_nothing_has_one_conversation_and_begins_no_second_one() -> None:
    replay = Replay(in_memory=True)
    replay.ask("a", "new_session")
    assert sent(replay) == ["get_state"]
    replay.answer("get_state", state(sessionId="own", messageCount=0))
    assert replay.told == ['a: {"session_file": null, "session_id": "own"}']
    replay.ask("b", "new_session")
    replay.answer("get_state", state(sessionId="own", messageCount=2))
    assert replay.told[-1] == "b: error used"
    assert sent(replay) == []


def test_an_extension_may_refuse_a_new_session(replay: Replay) -> None:
    replay.ask("a", "new_session")
    replay.answer("new_session", {"cancelled": True})
    assert replay.told == ["a: error cancelled"]
    replay.ask("b", "prompt", text="go")
    assert sent(replay) == ["prompt"], "the way is free again"


@pytest.mark.parametrize(("method", "params", "command"), SESSIONS)
def test_in_a_run_the_run_is_aborted_first_and_its_end_waited_for(
    busy: Replay, method: str, params: dict[str, Any], command: str
) -> None:
    busy.ask("b", method, **params)
    assert sent(busy) == ["abort"]
    busy.say(assistant("par", "aborted"), END, busy.answer_to("abort"))
    assert sent(busy) == ["get_state"]
    busy.answer_questions()
    assert busy.told[-2:] == ["done aborted", "a: aborted 'par'"]
    assert sent(busy) == [command]


@pytest.mark.parametrize(("method", "params", "command"), SESSIONS)
def test_a_run_that_does_not_end_is_given_up_after_a_grace(method: str, params: dict[str, Any], command: str) -> None:
    replay = in_a_run(RpcSettings(abort_grace=Seconds(1.0)))
    replay.ask("b", method, **params)
    replay.wait(0.9)
    assert sent(replay) == ["abort"]
    replay.wait(0.2)
    assert replay.told == ["done aborted", "a: aborted ''"]
    assert sent(replay) == ["abort", command]


def test_a_compaction_after_a_run_cannot_be_aborted_and_is_not_waited_for(busy: Replay) -> None:
    busy.say(assistant("hi"), END, {"type": "compaction_start", "reason": "threshold"})
    busy.written.clear()
    busy.ask("b", "new_session")
    assert sent(busy) == ["abort", "new_session"]


def test_a_session_change_that_pi_makes_in_a_run_ends_it(replay: Replay) -> None:
    """A run may have started unseen before the command; pi kills it without a word."""
    replay.ask("b", "new_session")
    replay.say(START)
    assert replay.is_running()
    replay.answer("new_session", {"cancelled": False})
    assert not replay.is_running()
    replay.answer_questions()
    assert replay.told[:2] == ["run_start r1", "done aborted"]


def test_the_last_words_of_a_run_that_was_given_up_are_nobodys() -> None:
    replay = in_a_run(RpcSettings(abort_grace=Seconds(0.1)))
    replay.ask("b", "new_session")
    replay.wait(0.2)
    replay.told.clear()
    replay.say(
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": "x"}},
        assistant("x", "aborted"),
        END,
    )
    assert replay.told == []


def test_one_change_at_a_time_and_no_prompt_meanwhile(replay: Replay) -> None:
    replay.ask("a", "new_session")
    replay.ask("b", "prompt", text="go")
    replay.ask("c", "switch_session", session_file="/x.jsonl")
    replay.ask("d", "steer", text="go")
    replay.ask("e", "compact")
    assert replay.told == ["b: error busy", "c: error busy", "d: error busy", "e: error busy"]
    assert sent(replay) == ["new_session"]


def test_the_queue_is_gone_with_its_session(replay: Replay) -> None:
    replay.say(queue("leftover"))
    replay.ask("a", "new_session")
    replay.answer("new_session", {"cancelled": False})
    assert replay.told == ["queue ['leftover'] []", "queue [] []"]


# --- switch ---


def test_a_switch_is_checked_by_what_pi_then_holds(replay: Replay) -> None:
    replay.ask("a", "switch_session", session_file=OLD)
    replay.change_session("switch_session", **recorded_state("c3"))
    assert json.loads(replay.told[0].removeprefix("a: ")) == {
        "session_id": "01a1fc08-3201-75f3-94d8-e3b0580a3885",
        "session_file": OLD,
    }


@pytest.mark.parametrize(
    ("path", "held"),
    [
        pytest.param("/golden/sess8/nope.jsonl", "c5", id="missing file"),
        pytest.param("/golden/sess8/garbage.jsonl", "c7", id="garbage"),
        pytest.param("/golden/other.jsonl", "c3", id="another session"),
        pytest.param("/x.jsonl", None, id="no transcript"),
    ],
)
def test_a_switch_that_pi_calls_a_success_may_be_none(replay: Replay, path: str, held: str | None) -> None:
    replay.ask("a", "switch_session", session_file=path)
    replay.change_session("switch_session", **(recorded_state(held) if held else {}))
    assert replay.told == ["a: error resume_failed"]


# --- settings that last ---


def test_a_model_set_at_run_time_outlives_the_session(replay: Replay) -> None:
    replay.ask("a", "set_model", provider="fake", model="fake-think")
    replay.answer("set_model", {})
    replay.answer("get_state", state())
    replay.ask("b", "set_thinking", level="high")
    replay.answer("set_thinking_level")
    replay.answer("get_state", state(thinkingLevel="high"))
    replay.told.clear()
    replay.ask("c", "new_session")
    replay.change_session("new_session")  # the command line's model again
    assert replay.last["modelId"] == "fake-think"
    replay.answer("set_model", {})
    assert replay.last["level"] == "high"
    assert replay.told == [], "not before all is as it was"
    replay.answer("set_thinking_level")
    replay.answer("get_state", state(sessionId="new"))
    assert replay.told == ['c: {"session_file": null, "session_id": "new"}']


def test_settings_that_hold_are_not_set_again(replay: Replay) -> None:
    replay.ask("a", "set_model", provider="fake", model="fake-1")
    replay.answer("set_model", {})
    replay.answer("get_state", state())
    replay.ask("c", "new_session")
    replay.change_session("new_session", sessionId="new")
    assert replay.told[-1] == 'c: {"session_file": null, "session_id": "new"}'


def test_a_model_that_was_refused_is_not_remembered(replay: Replay) -> None:
    replay.ask("a", "set_model", provider="fake", model="nope")
    replay.answer("set_model", error="Model not found: fake/nope")
    replay.ask("c", "new_session")
    replay.change_session("new_session", sessionId="new")
    assert replay.told == ["a: error refused", 'c: {"session_file": null, "session_id": "new"}']


def test_the_level_that_the_model_can_do_is_told(replay: Replay) -> None:
    replay.ask("a", "set_thinking", level="high")
    replay.answer("set_thinking_level")
    replay.answer("get_state", state(thinkingLevel="off"))
    assert replay.told == ['a: {"level": "off"}']
