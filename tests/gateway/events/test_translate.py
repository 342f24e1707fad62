"""What a worker says becomes what front ends are told: nothing it says raises, all of it is bounded."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.events.translate import TextPieces, Translator, TurnOutput
from gateway.events.worker_events import MAX_DATA_BYTES, READERS, PublishedEvent
from rpc import run_events
from rpc.pi.events import UiResolved
from wire.events import EventChannel, channel_of
from wire.messages import Message, ToolCallView

CALL = {"id": "c1", "name": "read", "input_preview": "x" * 500, "state": "RUNNING"}
SHOWN = {**CALL, "input_preview": "x" * 200}
MONITOR, CONTROL, PROGRESS = EventChannel.MONITOR, EventChannel.CONTROL, EventChannel.PROGRESS


def said(name: str | None, data: Any = None) -> Message:
    raw = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return Message(event=name, data=msgspec.Raw(raw))


def told(*messages: Message, translator: Translator | None = None) -> list[tuple[str, str, Any]]:
    return [shown(step) for step in (translator or Translator()).translate(list(messages))]


def shown(step: TurnOutput) -> tuple[str, str, Any]:
    if isinstance(step, TextPieces):
        return "text", step.type, [msgspec.json.decode(piece) for piece in step.pieces]
    return channel_of(step.type).value, step.type, json.loads(msgspec.json.encode(step.data))


def piece(text: Any, name: str = "assistant_message") -> Message:
    return said(name, {"partial": text, "run_id": "r9", "seq": 4})


# --- text -------------------------------------------------------------------------------------------------------------


def test_pieces_that_follow_each_other_are_one_step() -> None:
    found = told(
        piece("a"), piece("b\n"), piece("c", "thinking"), piece("é"), said("background", {"running": 1}), piece("")
    )
    assert found == [
        ("text", "text_chunk", ["a", "b\n"]),
        ("text", "think_chunk", ["c"]),
        ("text", "text_chunk", ["é"]),
        ("monitor", "background", {"running": 1}),
        ("text", "text_chunk", [""]),
    ]


@given(st.lists(st.text(), min_size=1))
def test_any_text_comes_through_as_valid_json_strings_on_one_line(texts: list[str]) -> None:
    (step,) = Translator().translate([piece(text) for text in texts])
    assert isinstance(step, TextPieces)
    assert [json.loads(bytes(raw)) for raw in step.pieces] == texts
    assert not any(b"\n" in bytes(raw) for raw in step.pieces)


@pytest.mark.parametrize("odd", [5, None, ["x"], {"a": 1}])
def test_an_odd_piece_is_left_out_with_one_warning_a_turn(odd: Any) -> None:
    translator = Translator()
    first, second = told(piece("a"), piece(odd), piece("b"), piece(odd), translator=translator)
    assert first == ("text", "text_chunk", ["a", "b"])
    assert second[:2] == ("monitor", "error")
    assert (second[2]["severity"], second[2]["phase"]) == ("warn", "system")
    assert "assistant_message" in second[2]["message"]
    assert told(piece(odd), piece("c"), translator=translator) == [("text", "text_chunk", ["c"])]
    assert len(told(piece(odd, "thinking"), translator=translator)) == 1


def test_a_batch_of_many_pieces_costs_little() -> None:
    batch = [piece("word ") for _ in range(65_000)]
    begin = time.thread_time()
    (step,) = Translator().translate(batch)
    took = time.thread_time() - begin
    assert isinstance(step, TextPieces)
    assert len(step.pieces) == 65_000
    assert took < 65_000 * 5e-6  # ten times the bar that the benchmark holds: other tests may be running


def test_the_result_of_a_call_is_told_to_a_bound() -> None:
    [(_, _, data)] = told(said("tool", {"phase": "end", "call": CALL, "result": "a" * 1_000_000 + "z"}))
    assert len(data["result"]) < 8_100
    assert data["result"].startswith("a" * 6_000)
    assert "[... 992001 characters left out ...]" in data["result"]
    assert data["result"].endswith("az")


# --- single events ----------------------------------------------------------------------------------------------------


APPROVAL = {"reason": "a rule", "decision": "allow", "by": "ann", "note": "ok", "ts": 5.5}
DETAILS = {"status": "running", "session_id": "s" * 300, "more": 1}
OPTION = {"id": "always", "name": "Always", "kind": "allow_always"}
UNUSABLE = {**OPTION, "id": "i" * 257}
DECIDED = {"call_id": "c1", "decision": "deny", "by": "uid:1", "note": "no"}
DIALOG = {"id": "d1", "method": "select", "fields": {"options": ["a"]}}
USAGE = {"input_tokens": 3, "output_tokens": 2}
FAILED = {"phase": "end", "reason": "overflow", "aborted": True, "error": "x"}


@pytest.mark.parametrize(
    ("name", "data", "channel", "type_", "shown"),
    [
        ("tool", {"phase": "start", "call": CALL}, PROGRESS, "tool:start", {}),
        ("tool", {"phase": "update", "call": CALL, "tail": "y" * 3000}, PROGRESS, "tool:update", {"tail": "y" * 2000}),
        ("tool", {"phase": "end", "call": CALL, "run_id": "r"}, PROGRESS, "tool:end", {}),
        (
            *("tool", {"phase": "end", "call": CALL, "details": DETAILS}, PROGRESS, "tool:end"),
            {"details": {"status": "running", "session_id": "s" * 256}},
        ),
        ("tool", {"phase": "error", "call": CALL, "error": "no"}, PROGRESS, "tool:error", {"error": "no"}),
        ("tool", {"phase": "running", "call": CALL}, PROGRESS, "tool:running", {}),
        ("tool_executed", {"call": CALL, "ok": True}, MONITOR, "tool_executed", {"ok": True}),
        ("tool_executed", {"call": CALL, "approval": APPROVAL}, MONITOR, "tool_executed", {"approval": APPROVAL}),
        ("permission_required", {"call": CALL, "reason": "x"}, CONTROL, "permission_required", {"reason": "x"}),
        (
            *("permission_required", {"call": CALL, "options": [UNUSABLE, *[{**OPTION, "name": "n" * 300}] * 20]}),
            *(CONTROL, "permission_required", {"options": [{**OPTION, "name": "n" * 100}] * 16}),
        ),
        ("permission_decided", {**DECIDED, "seq": 3}, CONTROL, "permission_decided", DECIDED),
        ("ui_request", DIALOG, CONTROL, "ui_request", DIALOG),
        ("ui_resolved", {"id": "d1", "reason": "x"}, CONTROL, "ui_resolved", {"id": "d1", "reason": "x"}),
        ("compaction", {"phase": "start"}, PROGRESS, "compaction:start", {}),
        ("compaction", FAILED, PROGRESS, "compaction:end", {"reason": "overflow", "aborted": True, "error": "x"}),
        ("token_usage", {**USAGE, "run_id": "r", "seq": 1}, MONITOR, "token_usage", USAGE),
        ("context_usage", {"used": 5, "size": 9, "seq": 1}, MONITOR, "context_usage", {"used": 5, "size": 9}),
        ("todo_changed", {"items": [{"text": "x"}], "seq": 1}, MONITOR, "todo_changed", {"items": [{"text": "x"}]}),
        ("file_changed", {"path": "a", "run_id": "r"}, MONITOR, "file_changed", {"path": "a"}),
        ("agent_resumed", {"strategy": "refed", "seq": 1}, MONITOR, "agent_resumed", {"strategy": "refed"}),
        ("agent_resumed", {"error": "c" * 300}, MONITOR, "agent_resumed", {"error": "c" * 300}),
        ("agent_resumed", {"sealed": ["c1"], "seq": 1}, MONITOR, "agent_resumed", {"sealed": ["c1"]}),
        ("background", {"running": 2}, MONITOR, "background", {"running": 2}),
        ("mood", {"level": 3}, MONITOR, "worker:mood", {"level": 3}),
        ("m" * 100, 5, MONITOR, f"worker:{'m' * 64}", 5),
    ],
)
def test_a_workers_event_is_told_on_its_channel_with_its_data(
    name: str, data: Any, channel: EventChannel, type_: str, shown: Any
) -> None:
    call = {"call": SHOWN} if isinstance(data, dict) and "call" in data else None
    assert told(said(name, data)) == [(channel.value, type_, {**call, **shown} if call else shown)]


@pytest.mark.parametrize(
    ("said_more", "severity", "phase", "more"),
    [
        ({}, "error", "model", {}),
        ({"severity": "info", "phase": "tool", "detail": {"a": 1}}, "info", "tool", {"more": {"a": 1}}),
        ({"code": "extension_error", "source": "e"}, "warn", "tool", {"code": "extension_error", "source": "e"}),
        ({"code": "stray_answer", "severity": "loud"}, "warn", "system", {"code": "stray_answer"}),
    ],
)
def test_an_error_has_a_severity_and_a_phase(said_more: Any, severity: str, phase: str, more: Any) -> None:
    detail = {"detail": more} if more else {}
    shown = {"severity": severity, "phase": phase, "message": "y" * 2000, **detail}
    assert told(said("error", {"message": "y" * 5000, **said_more})) == [("monitor", "error", shown)]


@pytest.mark.parametrize("name", ["run_start", "done", "state_changed", "ready", "start_failed", "exec_exit", None])
def test_what_the_gateway_says_in_its_own_words_is_passed_over(name: str | None) -> None:
    assert told(said(name, {"stop_reason": "stop"})) == []


def test_what_pi_tells_fits_the_same_vocabulary() -> None:
    call, stamp = ToolCallView("c1", "bash", "{}", "COMPLETED", 3.5), run_events.EventStamp("r", 1)
    view = {"id": "c1", "name": "bash", "input_preview": "{}", "state": "COMPLETED", "duration_ms": 3.5}
    error = {"severity": "warn", "phase": "tool", "message": "x", "detail": {"code": "extension_error"}}
    events: list[tuple[str, Any, tuple[str, str, Any]]] = [
        (
            "tool",
            run_events.tool_event("end", call, stamp, "ok"),
            ("progress", "tool:end", {"call": view, "result": "ok"}),
        ),
        ("tool_executed", run_events.ToolExecuted(call=call), ("monitor", "tool_executed", {"call": view})),
        (
            "compaction",
            run_events.Compaction(phase="start", reason="x"),
            ("progress", "compaction:start", {"reason": "x"}),
        ),
        ("error", run_events.ErrorEvent(code="extension_error", message="x"), ("monitor", "error", error)),
        (
            "ui_resolved",
            UiResolved(id="d", reason="timeout"),
            ("control", "ui_resolved", {"id": "d", "reason": "timeout"}),
        ),
        (
            *("token_usage", run_events.TokenUsageEvent(input_tokens=1, output_tokens=2)),
            ("monitor", "token_usage", {"input_tokens": 1, "output_tokens": 2}),
        ),
    ]
    assert told(*(said(name, data) for name, data, _ in events)) == [shown for _, _, shown in events]


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ({"steers": 2, "follow_ups": 5}, 2),
        (run_events.QueueUpdate(steering=["a", "b", "c"], follow_up=["d"], pending=4), 3),
        ({"steers": -1}, 0),
    ],
)
def test_the_queue_is_a_fact_and_no_event(data: Any, left: int) -> None:
    translator = Translator()
    assert told(said("queue_update", {"steers": 7}), said("queue_update", data), translator=translator) == []
    assert translator.queued_steers == left


def test_a_compaction_is_noticed_while_it_lasts() -> None:
    translator = Translator()
    start, end = said("compaction", {"phase": "start"}), said("compaction", {"phase": "end"})
    states = []
    for batch in ([piece("a")], [start], [piece("b")], [end], [start, end]):
        translator.translate(batch)
        states.append(translator.is_compacting)
    assert states == [False, True, True, False, False]


# --- bad data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*READERS, "queue_update", "assistant_message"])
def test_bad_data_is_one_warning_for_each_kind_of_event_and_turn(name: str) -> None:
    bad = [b"5", b'["x"]', b"null"]
    if name not in {"todo_changed", "file_changed", "agent_resumed", "token_usage"}:
        bad.append(b'{"call":5,"phase":5,"steers":"x","message":5,"id":[],"partial":1e999}')
    for data in bad:
        translator = Translator()
        (first,) = told(said(name, data), said(name, data), translator=translator)
        assert first[:2] == ("monitor", "error")
        assert first[2]["severity"] == "warn"
        assert name in first[2]["message"]
        assert told(said(name, data), translator=translator) == []


deep = b'{"a":' * 501 + b'"]]\\"]"' + b"}" * 501
less_deep = b'{"a":' * 500 + b"1" + b"}" * 500
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    name=st.sampled_from([*READERS, "queue_update", "assistant_message", "thinking", "done", "other"]) | st.text(),
    data=json_values.map(msgspec.json.encode)
    | st.sampled_from([deep, b'{"x":1e999}', b'{"message":"' + b"x" * 300_000 + b'"}']),
)
def test_nothing_a_worker_says_raises_and_all_of_it_is_bounded(name: str, data: bytes) -> None:
    for step in Translator().translate([said(name, data)]):
        if isinstance(step, PublishedEvent):
            assert len(msgspec.json.encode(step.data)) < MAX_DATA_BYTES + 10_000
            assert len(step.type) <= 100


def test_data_that_is_too_large_or_too_deep_is_shown_by_its_beginning() -> None:
    large = {"text": "x" * MAX_DATA_BYTES}
    ((_, type_, data),) = told(said("mood", large))
    assert type_ == "worker:mood"
    assert data["bytes"] == MAX_DATA_BYTES + 11
    assert data["beginning"].startswith('{"text":"xxx')
    ((_, _, data),) = told(said("todo_changed", less_deep))
    assert msgspec.json.encode(data) == less_deep
    ((_, _, data),) = told(said("mood", b"[" + b"[],{}," * 1000 + b'"{[{["]'))
    assert len(data) == 2001
    ((_, _, data),) = told(said("todo_changed", deep))
    assert data["bytes"] == len(deep)


def test_a_question_that_nobody_could_be_shown_is_a_warning() -> None:
    question = {"id": "d1", "method": "editor", "fields": {"prefill": "x" * MAX_DATA_BYTES}}
    ((channel, type_, _),) = told(said("ui_request", question))
    assert (channel, type_) == ("monitor", "error")
