"""What the pi dialect owes to ``rpc.dialect.Dialect``: readiness, ids, one answer each, nothing unchecked to pi."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from rpc.dialect import Dialect, make_dialect
from rpc.native import NativeDialect
from rpc.pi import PiDialect
from rpc.settings import RpcSettings
from tests.rpc.pi.replay import Replay, load, state

UNKNOWN = {"id": "unknown", "name": "unknown", "provider": "unknown", "api": "unknown"}


def test_a_dialect_is_made_by_its_name() -> None:
    made: Dialect = make_dialect("pi", settings=RpcSettings(), allow_bash=False)
    assert isinstance(made, PiDialect)
    assert isinstance(make_dialect("native", settings=RpcSettings(), allow_bash=False), NativeDialect)
    for name in ("absent", "client"):
        with pytest.raises(UsageError, match=f"there is no dialect '{name}'"):
            make_dialect(name, settings=RpcSettings(), allow_bash=False)


# --- ready ---


def test_ready_comes_with_the_first_good_state() -> None:
    replay = Replay(boot=False)
    assert replay.lines == [b'{"type":"get_state","id":"p1"}\n']
    assert replay.told == []
    replay.answer("get_state", state())
    (ready,) = replay.messages
    assert ready.event == "ready"
    data = json.loads(bytes(ready.data))
    assert (data["protocol"], data["agent"]) == (1, "pi")
    assert "prompt" in data["methods"]
    assert "bash" not in data["methods"]


@pytest.mark.parametrize("model", [None, UNKNOWN])
def test_a_pi_without_a_model_says_what_to_configure_instead_of_ready(model: Any) -> None:
    replay = Replay(boot=False)
    replay.answer("get_state", state(model=model))
    (message,) = replay.messages
    assert message.event == "start_failed"
    assert "--provider and --model" in json.loads(bytes(message.data))["message"]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (None, "no such thing", "pi refused the first question: no such thing"),
        ({"session": 1}, None, "pi's answer is not understood"),
    ],
)
def test_a_first_answer_that_is_none_is_a_failed_start(data: Any, error: str | None, message: str) -> None:
    replay = Replay(boot=False)
    replay.answer("get_state", data, error=error)
    assert replay.told[0].startswith(f'start_failed {{"message": "{message}')


# --- ids and answers ---


def test_the_callers_ids_never_reach_pi(replay: Replay) -> None:
    replay.ask("p1", "ping")
    replay.ask('"}\n{"type":"abort"}', "ping")
    assert [json.loads(line) for line in replay.lines[1:]] == [
        {"type": "get_state", "id": "p2"},
        {"type": "get_state", "id": "p3"},
    ]
    replay.answer_questions()
    assert [message.id for message in replay.messages[1:]] == ["p1", '"}\n{"type":"abort"}']


def test_an_answer_for_nobody_is_told_as_an_error_event(replay: Replay) -> None:
    replay.say({"id": "p99", "type": "response", "command": "get_state", "success": True, "data": {}})
    assert replay.told[0].startswith('error {"code": "stray_answer"')


def test_a_forgotten_request_is_answered_no_more(replay: Replay) -> None:
    replay.ask("a", "prompt", text="hi")
    replay.ask("b", "ping")
    replay.dialect.forget("a")
    replay.dialect.forget("b")
    replay.answer("prompt")
    replay.say({"type": "agent_start"}, {"type": "agent_end", "messages": []})
    replay.answer_questions()
    assert replay.told == ["run_start r1", "done stop"]


def test_an_unknown_command_without_an_id_fails_the_oldest_of_its_name(replay: Replay) -> None:
    replay.ask("a", "get_commands")
    replay.ask("b", "get_commands")
    replay.say(
        {"type": "response", "command": "get_commands", "success": False, "error": "Unknown command: get_commands"}
    )
    assert replay.told[0] == "a: error refused"
    assert replay.told[1].startswith('error {"code": "unknown_command"')
    replay.written.pop(0)
    replay.answer("get_commands", {"commands": []})
    assert replay.told[2] == 'b: {"commands": []}'


@pytest.mark.parametrize("several", [False, True])
def test_a_line_that_pi_could_not_read_fails_the_only_open_command(replay: Replay, *, several: bool) -> None:
    replay.ask("a", "get_commands")
    if several:
        replay.ask("b", "ping")
    replay.say({"type": "response", "command": "parse", "success": False, "error": "Failed to parse command: ..."})
    *failed, event = replay.told
    assert failed == ([] if several else ["a: error refused"])
    assert event.startswith('error {"code": "parse_error"')


def test_errors_that_pi_was_recorded_to_answer_without_an_id_become_events(replay: Replay) -> None:
    replay.say(*[record.line for record in load("errors") if record.to == "out" and '"id"' not in record.line[:8]])
    codes = [json.loads(line.removeprefix("error "))["code"] for line in replay.told if line.startswith("error ")]
    assert codes[:5] == ["parse_error"] * 4 + ["unknown_command"]


# --- parameters ---


@pytest.mark.parametrize("method", ["process", "decide", "shutdown", "frobnicate", "bash"])
def test_methods_that_pi_does_not_do_are_refused_and_nothing_is_sent(replay: Replay, method: str) -> None:
    replay.ask("a", method, command="rm -rf /", call_id="c", decision="allow", action="list")
    assert replay.told == ["a: unsupported"]
    assert len(replay.lines) == 1


def test_a_shell_command_runs_where_the_profile_has_the_tool() -> None:
    replay = Replay(allow_bash=True)
    replay.ask("a", "bash", command="true")
    assert replay.last == {"type": "bash", "command": "true", "id": "p2"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompt", {}),
        ("prompt", {"text": 5}),
        ("prompt", {"text": "a", "streaming_behavior": "zzz"}),
        ("prompt", {"text": "a", "images": "notalist"}),
        ("prompt", {"text": "a", "messsage": "typo"}),
        ("steer", {"text": None}),
        ("follow_up", {}),
        ("abort", {"keep_queue": "yes"}),
        ("set_thinking", {"level": "bogus"}),
        ("set_thinking", {}),
        ("set_model", {"provider": "", "model": "x"}),
        ("set_model", {"provider": {}, "model": "x"}),
        ("switch_session", {"session_file": "relative.jsonl"}),
        ("switch_session", {"session_file": None}),
        ("new_session", {"parent_session": 5}),
        ("compact", {"instructions": 5}),
        ("get_state", {"verbose": True}),
        ("ui_respond", {"value": "x"}),
        ("ui_respond", None),
    ],
)
def test_parameters_that_pi_would_take_in_silence_are_refused(replay: Replay, method: str, params: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        replay.dialect.request("a", method, msgspec.Raw(msgspec.json.encode(params)), 0.0)
    assert refusal.value.details["worker_code"] == "invalid_params"
    assert replay.dialect.request("b", "ping", msgspec.Raw(b"{}"), 0.0).messages == [], "nothing is left of it"


def test_tools_of_the_client_are_refused(replay: Replay) -> None:
    replay.ask("a", "prompt", text="hi", client_tools=[{"name": "x"}])
    assert replay.told == ["a: unsupported"]


def test_what_the_answer_is_to_be_stands_behind_the_text(replay: Replay) -> None:
    replay.ask("a", "prompt", text="/hi", answer={"instructions": "Speak Dutch.", "json": {}})
    [command] = [command for command in replay.written if command["type"] == "prompt"]
    assert command["message"].startswith("/hi\n\nSpeak Dutch.\n\nYour final answer is one JSON object")


@given(text=st.text(), other=st.text())
def test_whatever_a_client_says_is_one_object_on_one_line(text: str, other: str) -> None:
    """``null`` or half a line on its stdin would kill or confuse pi."""
    replay = Replay()
    params = msgspec.Raw(msgspec.json.encode({"text": text.encode(errors="replace").decode()}))
    for raw in (params, msgspec.Raw(b"null"), msgspec.Raw(other.encode(errors="replace"))):
        try:
            step = replay.dialect.request("a", "prompt", raw, 0.0)
        except UsageError:
            continue
        for line in step.outgoing:
            assert line.count(b"\n") == 1
            assert json.loads(line)["type"] == "prompt"


def test_images_go_to_pi_in_its_own_shape(replay: Replay) -> None:
    replay.ask("a", "prompt", text="look", images=[{"type": "image", "data": "AAAA", "mimeType": "image/png"}])
    (image,) = replay.last["images"]
    assert image == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


# --- lines of pi ---


def test_lines_that_are_no_messages_are_contamination(replay: Replay) -> None:
    step = replay.dialect.receive(b'oops\n{"no":"type"}\n{"type":"turn_start"}\n\xff\n', 0.0)
    assert step.invalid_lines == [b"oops", b'{"no":"type"}', b"\xff"]
    assert (step.leading_run, step.trailing_run, step.longest_run) == (2, 1, 2)
    assert step.messages == []


def test_events_of_newer_releases_are_passed_over(replay: Replay) -> None:
    replay.say({"type": "something_new", "value": 1}, {"type": "turn_start"})
    assert replay.told == []


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["agent_start", "agent_end", "auto_retry_start", "auto_retry_end", "message_end"])}
            | {"type": st.text(max_size=5)},
            optional={
                "success": st.booleans(),
                "message": st.none() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.integers()),
                "result": st.none() | st.integers(),
                "args": st.none() | st.lists(st.integers()),
                "id": st.none() | st.text(max_size=3) | st.integers(0, 3),
                "error": st.none() | st.integers(),
            },
        ),
        max_size=8,
    )
)
def test_nothing_that_pi_says_raises(lines: list[dict[str, Any]]) -> None:
    replay = Replay()
    replay.ask("a", "prompt", text="hi")
    replay.answer("prompt")
    replay.say({"type": "agent_start"}, *lines)


@pytest.mark.parametrize(
    "kind",
    [
        *("response", "message_update", "message_end", "tool_execution_start", "tool_execution_update"),
        *("tool_execution_end", "queue_update", "compaction_start", "compaction_end", "auto_retry_start"),
        *("extension_ui_request", "extension_error", "thinking_level_changed", "agent_end", "agent_settled"),
    ],
)
def test_an_event_with_nothing_in_it_raises_nothing(replay: Replay, kind: str) -> None:
    replay.say({"type": "agent_start"}, {"type": kind})


def test_an_extension_that_fails_is_told(replay: Replay) -> None:
    replay.say({"type": "extension_error", "extensionPath": "/x.ts", "event": "turn_end", "error": "boom"})
    assert replay.told == ['error {"code": "extension_error", "message": "/x.ts in turn_end: boom", "source": "/x.ts"}']


def test_settings_that_pi_changes_by_itself_are_told(replay: Replay) -> None:
    replay.say({"type": "thinking_level_changed", "level": "high"}, {"type": "session_info_changed", "name": "a name"})
    assert replay.told == ['state_changed {"thinking": "high"}', 'state_changed {"session_name": "a name"}']
