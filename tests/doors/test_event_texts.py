"""What an event says in a few words."""

from typing import Any

import msgspec
import pytest

from commands.event_text import answer_text, command_line, describe_event, event_text
from tests.doors.envelopes import event, pushed, text
from wire.messages import EventEnvelope

CALL = {"id": "c1", "name": "exec", "input_preview": "ls -la", "duration_ms": 1500}


@pytest.mark.parametrize(
    ("type_", "data", "words"),
    [
        ("run:accepted", {"lane": "main", "priority": 5, "mode": "steer"}, "steer, lane main, priority 5"),
        ("run:start", {"worker": "w3", "turn": "t1"}, "on w3, turn t1"),
        ("run:start", {"worker": "w3"}, "on w3"),
        ("tool:start", {"call": CALL}, "exec ls -la"),
        ("tool:update", {"call": CALL, "tail": "one\ntwo \x1b[2J\n"}, "exec ls -la: two \\x1b[2J"),
        ("tool:update", {"call": CALL}, "exec ls -la: "),
        ("tool:end", {"call": CALL}, "exec ls -la: ok (1.5 s)"),
        ("tool:end", {"call": CALL, "details": {"exit_code": 3}}, "exec ls -la: ended with code 3 (1.5 s)"),
        ("tool:end", {"call": "odd"}, "call=odd"),
        ("tool_executed", {"call": CALL}, "exec ls -la"),
        ("tool:error", {"call": CALL, "error": "no\nright"}, "exec ls -la: failed (1.5 s): no"),
        ("tool:error", {"call": CALL, "error": {"message": "no"}}, "exec ls -la: failed (1.5 s): no"),
        ("agent_resumed", {"strategy": "seal", "sealed": ["c1"]}, "the session was interrupted; tool calls sealed: 1"),
        ("compaction:start", {"reason": "overflow"}, "the conversation is being compacted (overflow)"),
        ("compaction:end", {"reason": "overflow"}, "the conversation is compacted"),
        ("compaction:end", {"error": "no"}, "the conversation could not be compacted: no"),
        ("compaction:end", {"aborted": True}, "the conversation was not compacted"),
        ("exec_exit", {"session_id": "calm-fox", "summary": "Exec completed"}, "Exec completed"),
        ("done", {"reason": "completed", "worker": "w1"}, "completed, on w1"),
        ("done", {"reason": "error", "error": {"code": "x", "message": "it broke"}}, "error, it broke"),
        (
            "done",
            {"reason": "completed", "usage": {"input_tokens": 10, "output_tokens": 4}},
            "completed, 10 + 4 tokens",
        ),
        ("permission_decided", {"call_id": "c1", "decision": "deny", "by": "u", "note": "no"}, "deny c1 by u no"),
        ("state_changed", {"from": "READY", "to": "WORKING", "reason": "run"}, "READY -> WORKING (run)"),
        ("alert", {"agent": "ops", "to": "signal:7", "text": "Full."}, "ops -> signal:7: Full."),
        ("alert", {"agent": "ops", "to": "x", "text": "See.", "media": ["/a", "/b"]}, "ops -> x: See. (and 2 files)"),
        ("heartbeat", {"agent": "ops", "reason": "interval", "state": "silent"}, "ops (interval) silent"),
        (
            "heartbeat",
            {"agent": "ops", "reason": "exec", "state": "skipped", "skipped": "disabled"},
            "ops (exec) skipped: disabled",
        ),
        (
            "heartbeat",
            {"agent": "ops", "reason": "exec", "state": "undeliverable", "to": "webhook:a", "error": "gone"},
            "ops (exec) undeliverable -> webhook:a: gone",
        ),
        ("cron", {"job": "tidy", "status": "failed", "error": "ill"}, "tidy: failed: ill"),
        ("error", {"severity": "warn", "phase": "model", "message": "slow"}, "warn model: slow"),
        ("worker_spawned", {"worker": "w1", "pid": 7, "cause": None, "why": "a b"}, 'worker=w1  pid=7  why="a b"'),
        ("brand_new", {"deep": {"a": [1]}, "empty": []}, 'deep={"a":[1]}'),
        ("brand_new", "no object", ""),
    ],
)
def test_an_event_is_told_by_what_matters_in_it(type_: str, data: Any, words: str) -> None:
    assert describe_event(event(type_, data)) == [words]


def test_the_session_is_not_told_twice() -> None:
    assert describe_event(event("session_bound", {"session": "ada", "worker": "w1"})) == ["worker=w1"]
    assert describe_event(event("worker_bound", {"session": "bob"})) == ["session=bob"]


def test_a_call_that_waits_for_approval_comes_with_its_command() -> None:
    told = describe_event(event("permission_required", {"call": CALL}, session="it's"), " --socket /s")
    assert told == [
        "exec ls -la",
        "pool approve --socket /s -s 'it'\"'\"'s' c1",
        "pool deny --socket /s -s 'it'\"'\"'s' c1 --note \"why not\"",
    ]


def test_no_event_can_control_the_terminal() -> None:
    told = describe_event(event("\x1b[2J", {"\x1b[2J": "\x1b[2J"}))
    assert "\x1b" not in "".join(told)
    assert "\x1b" not in command_line("approve", "\x1b[2J", session="\x07", place="")


def test_a_long_value_is_cut() -> None:
    assert describe_event(event("file_changed", {"path": "x" * 500})) == ["path=" + "x" * 199 + "…"]


@pytest.mark.parametrize("raw", [b"null", b"[]", b'{"delta":1}', b'{"delta":'])
def test_data_that_cannot_be_read_is_no_text(raw: bytes) -> None:
    odd = EventEnvelope(seq=1, ts=0.0, session="a", channel="progress", type="text_chunk", data=msgspec.Raw(raw))  # type: ignore[arg-type]  # a channel by its name
    assert event_text(odd) == ""
    describe_event(msgspec.structs.replace(odd, type="done"))


def test_the_answer_in_a_push_is_its_text_without_the_reasoning() -> None:
    thought = event("think_chunk", {"delta": "hm"})
    assert answer_text(pushed(text("a"), thought, event("done", {"text": "ab"}), text("b"))) == "ab"
