"""What of pushed events is said to a client, and in which shape."""

import json
from typing import Any

import msgspec

from doors.openai.completion_bodies import Chunks, TextExtractor, completion_body
from doors.openai.session_ref import SessionRef
from gateway.runs.run import DoneReason, RunOutcome

PLACE = SessionRef("alice", "k1", is_ours=False)


def push(*events: tuple[str, Any]) -> bytes:
    return msgspec.json.encode({"request": "r", "events": [{"type": type_, "data": data} for type_, data in events]})


def piece(text: str) -> tuple[str, Any]:
    return "text_chunk", {"delta": text}


def outcome(**facts: Any) -> RunOutcome:
    return RunOutcome(run_id="k1", session="alice", status="ok", **facts)


def chunks(**options: Any) -> Chunks:
    return Chunks(PLACE, model="main", created=7, **{"includes_usage": False, **options})


def test_pieces_that_come_together_are_one() -> None:
    words = TextExtractor()
    assert words.feed(push(("run:start", {}), piece("he"), piece("llo"), ("think_chunk", {"delta": "hm"}))) == "hello"
    assert words.has_text


def test_a_reader_that_was_too_slow_gets_the_text_at_once() -> None:
    assert (
        TextExtractor().feed(push(("text_snapshot", {"from_seq": 1, "to_seq": 9, "text": "all of it"}))) == "all of it"
    )


def test_what_is_said_around_a_tool_are_paragraphs() -> None:
    words = TextExtractor()
    assert words.feed(push(("tool:start", {}), piece("I look."), ("tool:start", {}), ("tool:start", {}))) == "I look."
    assert words.feed(push(("tool:end", {}))) == ""
    assert words.feed(push(piece("It"), piece(" rains"))) == "\n\nIt rains"


def test_silence_is_no_word() -> None:
    words = TextExtractor()
    assert words.feed(push(piece(""), ("done", None))) == ""
    assert not words.has_text


def test_what_some_take_for_a_line_end_is_escaped() -> None:
    said = chunks().text("a\u2028b\u2029c\x85d\ne")
    assert said.decode().splitlines()[1:] == [""]
    assert json.loads(said.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "a\u2028b\u2029c\x85d\ne"


def test_the_first_chunk_names_the_role_whatever_it_says() -> None:
    begun = chunks()
    first, last = begun.end(outcome()).split(b"\n\n")[:2]
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["role"] == "assistant"
    assert last == b"data: [DONE]"
    begun = chunks()
    begun.text("x")
    assert b"role" not in begun.text("y")


def test_an_answer_of_calls_has_no_text_and_an_empty_one_has() -> None:
    calls = [{"id": "c1", "name": "weather", "input": {"city": "Bonn"}}]
    asking = completion_body(outcome(reason=DoneReason.TOOL_CALLS, calls=calls), PLACE, model="main", created=7)
    silent = completion_body(outcome(silent=True), PLACE, model="main", created=7)
    assert asking["choices"][0]["message"]["content"] is None
    assert asking["choices"][0]["finish_reason"] == "tool_calls"
    assert silent["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert silent["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
