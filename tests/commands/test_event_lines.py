"""What an event says in a few words, and events as lines of a terminal."""

import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.event_lines import EventFormatter, fill_lines, shorten
from commands.event_text import answer_text, command_line, describe_event, event_text
from tests.doors.envelopes import event, pushed, text
from wire.events import EventChannel
from wire.messages import EventEnvelope
from wire.terminal import display_width

AT = time.strftime("%H:%M:%S", time.localtime(0))
CALL = {"id": "c1", "name": "exec", "input_preview": "ls -la", "duration_ms": 1500}
REFED = "the agent has lost its memory of the conversation and its tool calls; it was given the end of the transcript"
REFUSED = {"strategy": "refed", "cause": "error", "error": "gone"}
BROKE = {"code": "x", "message": "it broke"}
SKIPPED = {"agent": "ops", "reason": "exec", "state": "skipped", "skipped": "disabled"}
UNDELIVERABLE = {"agent": "ops", "reason": "exec", "state": "undeliverable", "to": "webhook:a", "error": "gone"}
USED = {"reason": "completed", "usage": {"input_tokens": 10, "output_tokens": 4}}


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
        ("agent_resumed", {"strategy": "refed"}, REFED),
        ("agent_resumed", {"strategy": "refed", "cause": "less"}, f"{REFED}, it had less than the transcript"),
        ("agent_resumed", REFUSED, f"{REFED}, it refused to load it, in its words: gone"),
        ("compaction:start", {"reason": "overflow"}, "the conversation is being compacted (overflow)"),
        ("compaction:end", {"reason": "overflow"}, "the conversation is compacted"),
        ("compaction:end", {"error": "no"}, "the conversation could not be compacted: no"),
        ("compaction:end", {"aborted": True}, "the conversation was not compacted"),
        ("exec_exit", {"session_id": "calm-fox", "summary": "Exec completed"}, "Exec completed"),
        ("done", {"reason": "completed", "worker": "w1"}, "completed, on w1"),
        ("done", {"reason": "error", "error": BROKE}, "error, it broke"),
        ("done", USED, "completed, 10 + 4 tokens"),
        ("permission_decided", {"call_id": "c1", "decision": "deny", "by": "u", "note": "no"}, "deny c1 by u no"),
        ("state_changed", {"from": "READY", "to": "WORKING", "reason": "run"}, "idle -> working (run)"),
        ("alert", {"agent": "ops", "to": "signal:7", "text": "Full."}, "ops -> signal:7: Full."),
        ("alert", {"agent": "ops", "to": "x", "text": "See.", "media": ["/a", "/b"]}, "ops -> x: See. (and 2 files)"),
        ("heartbeat", {"agent": "ops", "reason": "interval", "state": "silent"}, "ops (interval) silent"),
        ("heartbeat", SKIPPED, "ops (exec) skipped: disabled"),
        ("heartbeat", UNDELIVERABLE, "ops (exec) undeliverable -> webhook:a: gone"),
        ("cron", {"job": "tidy", "status": "failed", "error": "ill"}, "tidy: failed: ill"),
        ("error", {"severity": "warn", "phase": "model", "message": "slow"}, "warn model: slow"),
        ("worker_spawned", {"worker": "w1", "pid": 7, "cause": None, "why": "a b"}, 'worker=w1  pid=7  why="a b"'),
        ("brand_new", {"deep": {"a": [1]}, "empty": []}, 'deep={"a":[1]}'),
        ("brand_new", "no object", ""),
        ("session_bound", {"session": "ada", "worker": "w1"}, "worker=w1"),  # the event's own session, not twice
        ("worker_bound", {"session": "bob"}, "session=bob"),
        ("file_changed", {"path": "x" * 500}, "path=" + "x" * 199 + "…"),
    ],
)
def test_an_event_is_told_by_what_matters_in_it(type_: str, data: Any, words: str) -> None:
    assert describe_event(event(type_, data)) == [words]


def test_a_call_that_waits_for_approval_comes_with_its_command() -> None:
    assert describe_event(event("permission_required", {"call": CALL}, session="it's"), " --socket /s") == [
        "exec ls -la",
        "pool approve --socket /s -s 'it'\"'\"'s' c1",
        "pool deny --socket /s -s 'it'\"'\"'s' c1 --note \"why not\"",
    ]


def test_answers_of_the_agent_that_neither_command_gives_are_named_below_them() -> None:
    kinds = ("allow_once", "allow_once", "allow_always", "reject_once")
    options = [{"id": f"it's {number}", "name": f"\x1b{kind}", "kind": kind} for number, kind in enumerate(kinds)]
    *_commands, more = describe_event(event("permission_required", {"call": CALL, "options": options}, session="a"))
    assert more == "# also: --option 'it'\"'\"'s 1' (\\x1ballow_once), --option 'it'\"'\"'s 2' (\\x1ballow_always)"
    unnamed = {"call": CALL, "options": [{"id": "o", "name": "", "kind": "allow_always"}]}
    assert describe_event(event("permission_required", unnamed))[-1] == "# also: --option o"
    usual = {"call": CALL, "options": [options[0], options[3]]}
    assert len(describe_event(event("permission_required", usual))) == 3


def test_no_event_can_control_the_terminal() -> None:
    assert "\x1b" not in "".join(describe_event(event("\x1b[2J", {"\x1b[2J": "\x1b[2J"})))
    assert "\x1b" not in command_line("approve", "\x1b[2J", session="\x07", place="")


@pytest.mark.parametrize("raw", [b"null", b"[]", b'{"delta":1}', b'{"delta":'])
def test_data_that_cannot_be_read_is_no_text(raw: bytes) -> None:
    odd = EventEnvelope(seq=1, ts=0.0, session="a", channel="progress", type="text_chunk", data=msgspec.Raw(raw))  # type: ignore[arg-type]  # a channel by its name
    assert event_text(odd) == ""
    describe_event(msgspec.structs.replace(odd, type="done"))


def test_the_answer_in_a_push_is_its_text_without_the_reasoning() -> None:
    thought = event("think_chunk", {"delta": "hm"})
    assert answer_text(pushed(text("a"), thought, event("done", {"text": "ab"}), text("b"))) == "ab"


# --- lines of a terminal ---------------------------------------------------------------------------------------------


def lines_of(*events: EventEnvelope, width: int = 80) -> list[str]:
    lines = EventFormatter(width, is_coloured=False)
    return [*lines.feed(events), *lines.flush()]


WORDS = [text(word) for word in re.split(r"(?<= )", "one two three four five six seven eight nine ten")]


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        pytest.param([event("done", {"reason": "completed"})], ["ada            done           completed"], id="one"),
        pytest.param(
            WORDS,
            [
                "ada            text           one two three four five six seven eight",
                "ada            text           nine ten",
            ],
            id="pieces of text become lines that fill the terminal",
        ),
        pytest.param(
            [text("a1 "), text("b1 ", session="bob"), text("a2"), text("b2", session="bob")],
            ["ada text a1 a2", "bob text b1 b2"],
            id="texts of different sessions are gathered apart",
        ),
        pytest.param(
            [text("before"), event("tool:start", {"call": {"name": "exec"}}), text("after"), event("done", {})],
            ["ada text before", "ada tool:start exec", "ada text after", "ada done"],
            id="what else happens in a session ends its line first",
        ),
        pytest.param(
            [event("think_chunk", {"delta": "hm"}), text("yes"), text("no", run_id="r2")],
            ["ada think hm", "ada text yes", "ada text no"],
            id="reasoning, answer and another run's text never share a line",
        ),
        pytest.param(
            [text("a "), event("text_snapshot", {"text": "b"}), text(" c")],
            ["ada text a b c"],
            id="a snapshot continues the line of the pieces before it",
        ),
        pytest.param([event("worker_spawned", {}, session="")], ["- worker_spawned"], id="an event of no session"),
    ],
)
def test_a_line_has_time_session_kind_and_the_essential(events: list[EventEnvelope], shown: list[str]) -> None:
    found = lines_of(*events)
    assert [line.partition(" ")[0] for line in found] == [AT] * len(shown)
    said = [line.partition(" ")[2] for line in found]
    assert [
        line if "  " in wanted else " ".join(line.split()) for line, wanted in zip(said, shown, strict=True)
    ] == shown


def test_a_piece_is_shown_when_its_line_is_full_not_before() -> None:
    lines = EventFormatter(80, is_coloured=False)
    assert lines.feed([text("a b ")]) == []
    assert len(lines.feed([text("c\n")])) == 1
    assert lines.flush() == []


def test_what_is_too_long_is_cut_but_a_command_to_type_never_is() -> None:
    long = event("state_changed", {"reason": "x" * 200}, session="agent:main:telegram:group:-100")
    [line] = lines_of(long)
    assert (line.split()[1], len(line), line[-1]) == ("…am:group:-100", 80, "…")
    call = {"id": "c" * 200, "name": "exec", "input_preview": "x" * 200}
    asks = event("permission_required", {"call": call}, channel=EventChannel.CONTROL)
    assert len(lines_of(asks)[0]) == 80
    asks = event("permission_required", {"call": {"id": "c" * 200, "name": "exec"}}, channel=EventChannel.CONTROL)
    assert lines_of(asks)[1].endswith(f" pool approve -s ada {'c' * 200}")
    lines = EventFormatter(80, is_coloured=False)
    lines.set_width(120)
    assert lines.feed([event("done", {"reason": "completed"})])[0].split(" ", 1)[1] == (
        "ada                      done                completed"
    )
    assert len(lines.feed([event("x", {"a": "b" * 200})])[0]) == 120


def test_colours_are_there_only_where_they_are_wanted() -> None:
    events = [text("a\n"), event("error", {"message": "m"}, channel=EventChannel.MONITOR)]
    assert "\x1b[31m" in EventFormatter(80, is_coloured=True).feed(events)[1]
    assert "\x1b" not in "".join(EventFormatter(80, is_coloured=False).feed(events))


@given(st.lists(st.text(), max_size=8), st.integers(1, 40))
def test_no_line_is_too_wide_and_no_visible_character_is_lost(pieces: list[str], width: int) -> None:
    lines: list[str] = []
    rest = ""
    for piece in pieces:
        full, rest = fill_lines(rest + piece, width)
        lines += full
    shown = "".join([*lines, rest]).replace(" ", "")
    said = "".join(pieces).replace(" ", "").replace("\n", "")
    blank = {ord(ch): None for ch in shown + said if ch.isspace()}
    assert shown.translate(blank) == said.translate(blank)
    assert all(display_width(line) <= max(width, 2) for line in [*lines, rest])


def test_wide_characters_are_counted_as_wide() -> None:
    assert (shorten("日本の山", 5), shorten("日本の山", 5, keep_end=True)) == ("日本…", "…の山")
