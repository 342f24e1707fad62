"""What a real pi was recorded to say, in the words that the layer above hears."""

import json
from typing import Any

import pytest

from tests.rpc.pi.replay import GOLDEN, Record, Replay, load

WORDS = "".join(f"word{number:05} " for number in range(30))


def played(name: str, *, upto: str | None = None, allow_bash: bool = False) -> Replay:
    replay = Replay(allow_bash=allow_bash)
    replay.attended = True
    replay.play(cut(load(name), upto))
    return replay


def cut(records: list[Record], upto: str | None) -> list[Record]:
    """The records before the request of that id."""
    for index, record in enumerate(records):
        if record.to == "in" and json.loads(record.line).get("id") == upto:
            return records[:index]
    return records


def without_tokens(told: list[str]) -> list[str]:
    return [line for line in told if not line.startswith("tokens ")]


def test_a_text_turn() -> None:
    assert played("prompt_text").told == [
        "run_start r1",
        "assistant_message word00000 word00001 word00002 ",
        "tokens 1376 3",
        "done stop",
        "c1: stop 'word00000 word00001 word00002 '",
    ]


def test_a_turn_with_a_tool_call() -> None:
    replay = played("prompt_tool")
    assert replay.told == [
        "run_start r1",
        "tokens 1382 3",
        "tool start bash RUNNING",
        "tool update bash RUNNING ''",
        "tool update bash RUNNING 'hi\\n'",
        "tool update bash RUNNING 'hi\\ndone\\n'",
        "tool_executed bash COMPLETED",
        "tool end bash COMPLETED 'hi\\ndone\\n'",
        "assistant_message after tool: ok",
        "tokens 2823 6",
        "done stop",
        "c1: stop 'after tool: ok'",
    ]
    result = json.loads(bytes(replay.messages[-1].result))
    assert [event["event"] for event in result["events"]] == [
        "assistant_message",
        "tool",
        "tool_executed",
        "tool",
        "assistant_message",
    ]
    assert result["usage"] == {"input_tokens": 2823, "output_tokens": 6}
    call = result["events"][2]["data"]["call"]
    assert call["input_preview"] == '{"command":"echo hi; sleep 1; echo done"}'
    assert call["duration_ms"] == pytest.approx(1029, abs=5)


def test_steers_and_follow_ups_join_the_run_and_are_answered_when_pi_has_them() -> None:
    told = without_tokens(played("steer_follow_up").told)
    assert told.index("c2: {}") == told.index("queue ['STEER now'] []") + 1
    assert told.index("c3: {}") == told.index("queue ['STEER now'] ['FOLLOW later']") + 1
    assert told[-5:] == [
        "assistant_message echo: STEER now",
        "queue [] []",
        "assistant_message echo: FOLLOW later",
        "done stop",
        "c1: stop 'echo: FOLLOW later'",
    ]


def test_a_prompt_in_a_run_is_busy_or_joins_it_and_is_answered_with_its_end() -> None:
    told = without_tokens(played("prompt_while_streaming").told)
    assert "c2: error busy" in told
    assert told[-4:] == [
        "done stop",
        "c1: stop 'echo: fourth'",
        "c3: stop 'echo: fourth'",
        "c4: stop 'echo: fourth'",
    ]


def test_an_abort_is_answered_after_the_run_that_it_ended() -> None:
    told = without_tokens(played("abort").told)
    assert told[:5] == [
        "run_start r1",
        f"assistant_message {WORDS[:70]}",
        "done aborted",
        f"c1: aborted {WORDS[:70]!r}",
        'c2: {"left_in_queue": 0}',
    ]
    in_a_tool = told.index("run_start r2")
    assert told[in_a_tool + 5 : in_a_tool + 12] == [
        "tool error bash FAILED 'Command aborted'",
        "tool_executed bash FAILED",
        "tool end bash FAILED 'Command aborted'",
        "queue [] []",
        "done aborted",
        "c3: aborted ''",
        'c5: {"left_in_queue": 0}',
    ]
    assert 'c7: {"left_in_queue": 0}' in told, "an abort without a run is answered too"
    assert told[-1] == "c8: stop 'echo: after abort'"


def test_texts_that_survive_an_abort_without_a_transcript_are_counted() -> None:
    replay = played("follow_up_then_abort", upto="c5")
    assert without_tokens(replay.told)[-6:] == [
        "c2: {}",
        "queue ['ST later'] ['FU later']",
        "c3: {}",
        "done aborted",
        "c1: aborted 'word00000 '",
        'c4: {"left_in_queue": 2}',
    ]


def test_a_null_would_kill_pi() -> None:
    """Why nothing unparsed is ever written: ``test_contract`` holds the dialect to it."""
    records = load("null_line")
    assert [record.line for record in records if record.to == "in"][-1] == "null"
    assert "rc=1" in records[-1].line


def test_a_model_that_hangs_is_aborted_before_and_after_its_first_words() -> None:
    told = without_tokens(played("hang").told)
    assert told[:9] == [
        "run_start r1",
        "assistant_message before hang ",
        "done aborted",
        "c1: aborted 'before hang '",
        'c2: {"left_in_queue": 0}',
        "run_start r2",
        "done aborted",
        "c3: aborted ''",
        'c4: {"left_in_queue": 0}',
    ]


def test_a_run_with_a_retry_has_one_end() -> None:
    replay = played("http_errors")
    told = without_tokens(replay.told)
    assert [line for line in told if line.startswith(("run_start", "done", "c1", "c4", "c5"))] == [
        "run_start r1",
        "c4: error busy",
        "done stop",
        "c1: stop 'echo: during retry'",
        "run_start r2",
        "done error",
        "c5: error '' (500 fake internal error)",
    ]
    ends = sum('"agent_end"' in record.line[:40] for record in load("http_errors"))
    assert ends == 6, "the recording holds four ends of the last prompt alone"


def test_a_retry_is_told_with_its_delay_in_seconds() -> None:
    told = played("abort_retry", upto="c3").told
    assert told[2] == (
        'state_changed {"attempt": 1, "delay": 2.0, "error": "500 fake internal error", '
        '"max_attempts": 3, "state": "retrying"}'
    )


def test_a_cancelled_retry_ends_the_run_with_its_error() -> None:
    assert without_tokens(played("abort_retry", upto="c3").told)[-2:] == [
        "done error",
        "c1: error '' (500 fake internal error)",
    ]


def test_a_retry_that_helps_hides_the_error() -> None:
    told = played("abort_retry", upto="c4").told
    assert told[-1] == "c3: stop 'echo: HTTP500x4 1795230712.713953'"


def test_separators_that_are_not_line_ends_stay_in_the_text() -> None:
    assert played("u2028").told[-1] == f"c4: stop {'echo: U2028 ' + chr(0x2028) + 'mid' + chr(0x2029) + 'end'!r}"


def test_thoughts_are_told_apart_from_text() -> None:
    told = played("model_thinking").told
    assert "thinking thought0 thought1 thought2 " in told
    assert told[-1].startswith("c18: stop ")


def test_bogus_levels_and_models_are_refused_though_pi_says_success() -> None:
    replay = played("model_thinking", upto="c18")
    assert "c7: invalid_params" in replay.told
    assert "c11: error refused" in replay.told, "pi does check the names of models"
    assert "c12: invalid_params" in replay.told
    assert not any(b"bogus" in line for line in replay.lines)


def test_compaction_and_shell_commands() -> None:
    replay = played("stats_compact_bash", allow_bash=True)
    assert replay.told[0] == 'compaction {"phase": "start", "reason": "manual"}'
    assert replay.told[1] == 'compaction {"phase": "end", "reason": "manual"}'
    assert replay.told[2].startswith('c1: {"details": ')
    shell = {"cancelled": False, "exit_code": 3, "output": "out\nerr\n", "truncated": False}
    assert replay.told[-1] == f"c5: {json.dumps(shell, sort_keys=True)}"
    messages = next(message for message in replay.messages if message.id == "c4")
    assert [item["role"] for item in json.loads(bytes(messages.result))["messages"]][:2] == [
        "compactionSummary",
        "user",
    ]


def test_dialogs_are_shown_answered_and_dismissed() -> None:
    replay = played("extension_ui", upto="c5")
    told = [line for line in replay.told if "setStatus" not in line and "setWidget" not in line]
    at = told.index('ui_request input {"placeholder": "type something...", "title": "Enter a value"}')
    assert told[at + 1].startswith("c3: ")
    dialog = json.loads(bytes(next(m for m in replay.messages if m.event == "ui_resolved").data))["id"]
    assert told[at + 2] == f'to pi: {{"id": "{dialog}", "value": "forty two"}}'
    assert told[at + 3] == "ui_resolved answered"
    assert told[at + 5].startswith("ui_request notify ")
    assert told[at + 6] == "c2: stop ''", "an extension's command is no run"
    assert 'ui_request select {"options": ["Allow", "Block"], "title": "Dangerous command: sudo true"}' in told
    assert told[-1] == "c4: stop 'after tool: ok'"


def test_a_session_whose_directory_is_gone_is_refused() -> None:
    replay = played("cwd_gone", upto="c2")
    assert replay.told == ["c1: error refused"]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_line_that_pi_was_recorded_to_say_is_understood(path: Any) -> None:
    """In whatever blocks, without one line of contamination; ids that are objects are none of ours."""
    lines = [record.line for record in load(path.stem) if record.to == "out" and '"id":{"a":1}' not in record.line]
    whole, by_line = Replay(), Replay()
    whole.say(*lines)
    for line in lines:
        by_line.say(line)
    assert whole.contaminated == by_line.contaminated == []
    told = [[line for line in replay.told if not line.startswith("to pi: ")] for replay in (whole, by_line)]
    assert told[0] == told[1]
