"""What tools did: one line for each call, and a failure only for as long as it is true."""

from typing import Any

from gateway.turns.replies import ToolNotes
from wire.messages import ToolCallView


def call(name: str = "exec", id_: str = "c1", **fields: Any) -> ToolCallView:
    return ToolCallView(**{"id": id_, "name": name, "state": "COMPLETED", **fields})


def test_a_call_is_told_in_one_short_line() -> None:
    notes = ToolNotes()
    notes.ended(call(input_preview='{"command":\n "ls"}', duration_ms=1234), None, keep_note=True)
    notes.ended(call("read", "c2", input_preview="x" * 500), None, keep_note=True)
    notes.ended(call("edit", "c3"), "no such\nfile", keep_note=True)
    (text,) = notes.take()
    first, second, third = text.splitlines()
    assert first == '[exec {"command": "ls"}] (1.2 s)'
    assert (len(second), second[-1]) == (160, "…")
    assert third == "[edit] failed: no such file"
    assert notes.take() == []


def test_lines_nobody_wants_are_not_kept() -> None:
    notes = ToolNotes()
    notes.ended(call(), None, keep_note=False)
    assert notes.take() == []


def test_after_fifty_calls_only_their_number_is_told() -> None:
    notes = ToolNotes()
    for number in range(53):
        notes.ended(call(id_=str(number)), None, keep_note=True)
    (text,) = notes.take()
    assert len(text.splitlines()) == 51
    assert text.endswith("[and 3 more tool calls]")


def test_a_failure_told_as_error_and_as_end_counts_once() -> None:
    notes = ToolNotes()
    notes.ended(call(id_="a"), "first", keep_note=True)
    notes.ended(call(id_="b"), "second", keep_note=True)
    notes.ended(call(id_="a", state="FAILED"), None, keep_note=True)
    notes.ended(call(id_="b"), None, keep_note=True)
    assert notes.failure == "exec failed: second"
    assert len(notes.take()[0].splitlines()) == 2


def test_a_failure_that_was_made_good_is_none() -> None:
    notes = ToolNotes()
    notes.ended(call(id_="a"), "busy", keep_note=False)
    notes.ended(call("read", "b"), None, keep_note=False)
    assert notes.failure == "exec failed: busy"
    notes.ended(call(id_="c"), None, keep_note=False)
    assert notes.failure == ""


def test_a_call_may_fail_without_an_error_of_its_own() -> None:
    notes = ToolNotes()
    notes.ended(call(state="DENIED"), None, keep_note=False)
    assert notes.failure == "exec failed: it was not allowed"
    notes.ended(call("", state="FAILED"), None, keep_note=False)
    assert notes.failure == "a tool failed: no reason was given"


def test_failures_without_end_are_not_all_remembered() -> None:
    notes = ToolNotes()
    for number in range(1000):
        notes.ended(call(id_=str(number)), "x" * 10_000, keep_note=False)
    assert len(notes._failed_calls) <= 64
    assert len(notes.failure) <= 220


def test_a_text_is_delivered_only_if_it_can_have_gone_to_this_conversation() -> None:
    notes = ToolNotes()

    def sent(preview: str, name: str = "message", error: str | None = None) -> str | None:
        return notes.ended(call(name, input_preview=preview), error, keep_note=False)

    assert sent('{"text":"hi"}') == "hi"
    assert sent('{"action":"send","message":"hi"}') == "hi"
    assert sent('{"text":"hi","to":"bob"}') is None
    assert sent('{"text":"hi, and then it was cut o') is None
    assert sent("[1]") is None
    assert sent('{"text":5}') is None
    assert sent('{"text":"hi"}', name="exec") is None
    assert sent('{"text":"hi"}', error="no") is None
