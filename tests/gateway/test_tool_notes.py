"""What tools did: one line for each call, and a failure only for as long as it is true."""

from typing import Any

import pytest

from gateway.turns.replies import ToolSummaries
from wire.messages import ToolCallView


def call(name: str = "exec", id_: str = "c1", **fields: Any) -> ToolCallView:
    return ToolCallView(**{"id": id_, "name": name, "state": "COMPLETED", **fields})


def test_a_call_is_told_in_one_short_line() -> None:
    notes = ToolSummaries()
    notes.on_tool_end(call(input_preview='{"command":\n "ls"}', duration_ms=1234), None, keep_note=True)
    notes.on_tool_end(call("read", "c2", input_preview="x" * 500), None, keep_note=True)
    notes.on_tool_end(call("edit", "c3"), "no such\nfile", keep_note=True)
    (text,) = notes.drain()
    first, second, third = text.splitlines()
    assert first == '[exec {"command": "ls"}] (1.2 s)'
    assert (len(second), second[-1]) == (160, "…")
    assert third == "[edit] failed: no such file"
    assert notes.drain() == []


def test_after_fifty_calls_only_their_number_is_told() -> None:
    notes = ToolSummaries()
    for number in range(53):
        notes.on_tool_end(call(id_=str(number)), None, keep_note=True)
    (text,) = notes.drain()
    assert len(text.splitlines()) == 51
    assert text.endswith("[and 3 more tool calls]")


def test_a_failure_told_as_error_and_as_end_counts_once() -> None:
    notes = ToolSummaries()
    notes.on_tool_end(call(id_="a"), "first", keep_note=True)
    notes.on_tool_end(call(id_="b"), "second", keep_note=True)
    notes.on_tool_end(call(id_="a", state="FAILED"), None, keep_note=True)
    notes.on_tool_end(call(id_="b"), None, keep_note=True)
    assert notes.failure == "exec failed: second"
    assert len(notes.drain()[0].splitlines()) == 2


def test_a_failure_that_was_made_good_is_none_and_notes_that_are_not_wanted_are_not_kept() -> None:
    notes = ToolSummaries()
    notes.on_tool_end(call(id_="a"), "busy", keep_note=False)
    notes.on_tool_end(call("read", "b"), None, keep_note=False)
    assert notes.failure == "exec failed: busy"
    notes.on_tool_end(call(id_="c"), None, keep_note=False)
    assert (notes.failure, notes.drain()) == ("", [])
    notes.on_tool_end(call(state="DENIED"), None, keep_note=False)
    assert notes.failure == "exec failed: it was not allowed"
    notes.on_tool_end(call("", state="FAILED"), None, keep_note=False)
    assert notes.failure == "a tool failed: no reason was given"


def test_failures_without_end_are_not_all_remembered() -> None:
    notes = ToolSummaries()
    for number in range(1000):
        notes.on_tool_end(call(id_=str(number)), "x" * 10_000, keep_note=False)
    assert len(notes._failed_calls) <= 64
    assert len(notes.failure) <= 220


@pytest.mark.parametrize(
    ("preview", "more", "text"),
    [
        *(('{"text":"hi"}', {}, "hi"), ('{"action":"send","message":"hi"}', {}, "hi")),
        *(('{"text":"hi","to":"bob"}', {}, None), ('{"text":"hi, and then it was cut o', {}, None), ("[1]", {}, None)),
        *(
            ('{"text":5}', {}, None),
            ('{"text":"hi"}', {"name": "exec"}, None),
            ('{"text":"hi"}', {"error": "no"}, None),
        ),
    ],
)
def test_a_text_is_delivered_only_if_it_can_have_gone_to_this_conversation(
    preview: str, more: dict[str, str], text: str | None
) -> None:
    view = call(more.get("name", "message"), input_preview=preview)
    assert ToolSummaries().on_tool_end(view, more.get("error"), keep_note=False) == text
