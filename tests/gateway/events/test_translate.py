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
from rpc.pi import events as pi
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


def warning(name: str) -> Any:
    return pytest.approx(("monitor", "error", {"severity": "warn", "phase": "system", "message": name}))


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


@pytest.mark.parametrize("data", [b"null", b"5", b'["x"]', b'"x"', b'{"partial":1e999}'])
def test_data_that_is_no_piece_is_left_out(data: bytes) -> None:
    assert [step[:2] for step in told(said("assistant_message", data))] == [("monitor", "error")]


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


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("tool", {"phase": "start", "call": CALL}, (PROGRESS, "tool:start", {"call": SHOWN})),
        (
            "tool",
            {"phase": "update", "call": CALL, "tail": "y" * 3000 + "z"},
            (PROGRESS, "tool:update", {"call": SHOWN, "tail": "y" * 1999 + "z"}),
        ),
        ("tool", {"phase": "end", "call": CALL, "run_id": "r"}, (PROGRESS, "tool:end", {"call": SHOWN})),
        (
            "tool",
            {"phase": "end", "call": CALL, "details": {"status": "running", "session_id": "s" * 300, "more": 1}},
            (PROGRESS, "tool:end", {"call": SHOWN, "details": {"status": "running", "session_id": "s" * 256}}),
        ),
        (
            "tool",
            {"phase": "error", "call": CALL, "error": "no"},
            (PROGRESS, "tool:error", {"call": SHOWN, "error": "no"}),
        ),
        ("tool_executed", {"call": CALL, "ok": True}, (MONITOR, "tool_executed", {"call": SHOWN, "ok": True})),
        (
            "tool_executed",
            {"call": CALL, "approval": {"reason": "a rule", "decision": "allow", "by": "ann", "note": "ok", "ts": 5.5}},
            (
                *(MONITOR, "tool_executed"),
                {
                    "call": SHOWN,
                    "approval": {"reason": "a rule", "decision": "allow", "note": "ok", "by": "ann", "ts": 5.5},
                },
            ),
        ),
        (
            "permission_required",
            {"call": CALL, "reason": "a rule"},
            (CONTROL, "permission_required", {"call": SHOWN, "reason": "a rule"}),
        ),
        ("tool", {"phase": "running", "call": CALL}, (PROGRESS, "tool:running", {"call": SHOWN})),
        (
            "permission_decided",
            {"call_id": "c1", "decision": "deny", "by": "uid:1", "note": "no", "seq": 3},
            (CONTROL, "permission_decided", {"call_id": "c1", "decision": "deny", "by": "uid:1", "note": "no"}),
        ),
        (
            "ui_request",
            {"id": "d1", "method": "select", "fields": {"options": ["a"]}},
            (CONTROL, "ui_request", {"id": "d1", "method": "select", "fields": {"options": ["a"]}}),
        ),
        ("ui_resolved", {"id": "d1", "reason": "timeout"}, (CONTROL, "ui_resolved", {"id": "d1", "reason": "timeout"})),
        ("compaction", {"phase": "start"}, (PROGRESS, "compaction:start", {})),
        (
            "compaction",
            {"phase": "end", "reason": "overflow", "aborted": True, "error": "x"},
            (PROGRESS, "compaction:end", {"reason": "overflow", "aborted": True, "error": "x"}),
        ),
        (
            "token_usage",
            {"input_tokens": 3, "output_tokens": 2, "run_id": "r", "seq": 1},
            (MONITOR, "token_usage", {"input_tokens": 3, "output_tokens": 2}),
        ),
        ("todo_changed", {"items": [{"text": "x"}], "seq": 1}, (MONITOR, "todo_changed", {"items": [{"text": "x"}]})),
        ("file_changed", {"path": "a", "run_id": "r"}, (MONITOR, "file_changed", {"path": "a"})),
        (
            "agent_resumed",
            {"strategy": "seal", "sealed": ["c1"], "seq": 1},
            (MONITOR, "agent_resumed", {"sealed": ["c1"], "strategy": "seal"}),
        ),
        ("background", {"running": 2}, (MONITOR, "background", {"running": 2})),
        ("mood", {"level": 3}, (MONITOR, "worker:mood", {"level": 3})),
        ("m" * 100, 5, (MONITOR, f"worker:{'m' * 64}", 5)),
    ],
)
def test_a_workers_event_is_told_on_its_channel_with_its_data(
    name: str, data: Any, expected: tuple[EventChannel, str, Any]
) -> None:
    assert told(said(name, data)) == [(expected[0].value, expected[1], expected[2])]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"message": "no model"}, {"severity": "error", "phase": "model", "message": "no model"}),
        (
            {"message": "x", "severity": "info", "phase": "tool", "detail": {"a": 1}},
            {"severity": "info", "phase": "tool", "message": "x", "detail": {"more": {"a": 1}}},
        ),
        (
            {"message": "x", "code": "extension_error", "source": "e.ts"},
            {
                "severity": "warn",
                "phase": "tool",
                "message": "x",
                "detail": {"code": "extension_error", "source": "e.ts"},
            },
        ),
        (
            {"message": "x", "code": "stray_answer", "severity": "loud"},
            {"severity": "warn", "phase": "system", "message": "x", "detail": {"code": "stray_answer"}},
        ),
        ({"message": "y" * 5000}, {"severity": "error", "phase": "model", "message": "y" * 2000}),
    ],
)
def test_an_error_has_a_severity_and_a_phase(data: Any, expected: Any) -> None:
    assert told(said("error", data)) == [("monitor", "error", expected)]


@pytest.mark.parametrize("name", ["run_start", "done", "state_changed", "ready", "start_failed", "exec_exit", None])
def test_what_the_gateway_says_in_its_own_words_is_passed_over(name: str | None) -> None:
    assert told(said(name, {"stop_reason": "stop"})) == []


def test_what_pi_tells_fits_the_same_vocabulary() -> None:
    call, stamp = ToolCallView("c1", "bash", "{}", "COMPLETED", 3.5), pi.EventStamp("r", 1)
    events = [
        ("tool", pi.tool_event("end", call, stamp, "it said")),
        ("tool_executed", pi.ToolExecuted(call=call)),
        ("compaction", pi.Compaction(phase="start", reason="threshold")),
        ("error", pi.ErrorEvent(code="extension_error", message="x")),
        ("ui_resolved", pi.UiResolved(id="d", reason="answered")),
        ("token_usage", pi.TokenUsageEvent(input_tokens=1, output_tokens=2)),
    ]
    view = {"id": "c1", "name": "bash", "input_preview": "{}", "state": "COMPLETED", "duration_ms": 3.5}
    assert told(*(said(name, data) for name, data in events)) == [
        ("progress", "tool:end", {"call": view, "result": "it said"}),
        ("monitor", "tool_executed", {"call": view}),
        ("progress", "compaction:start", {"reason": "threshold"}),
        (
            "monitor",
            "error",
            {"severity": "warn", "phase": "tool", "message": "x", "detail": {"code": "extension_error"}},
        ),
        ("control", "ui_resolved", {"id": "d", "reason": "answered"}),
        ("monitor", "token_usage", {"input_tokens": 1, "output_tokens": 2}),
    ]


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ({"steers": 2, "follow_ups": 5}, 2),
        (pi.QueueUpdate(steering=["a", "b", "c"], follow_up=["d"], pending=4), 3),
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
        states.append((translator.is_compacting, translator.compaction_changed))
    assert states == [(False, False), (True, True), (True, False), (False, True), (False, False)]


# --- bad data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*READERS, "queue_update"])
@pytest.mark.parametrize("data", [b"5", b'["x"]', b"null", b'{"call":5,"phase":5,"steers":"x","message":5,"id":[]}'])
def test_bad_data_is_one_warning_for_each_kind_of_event_and_turn(name: str, data: bytes) -> None:
    if name in ("todo_changed", "file_changed", "agent_resumed", "token_usage") and data.startswith(b"{"):
        return
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
