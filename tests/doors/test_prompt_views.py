"""How an answer looks on the terminal while it comes, and as JSON."""

from typing import Any

import msgspec

from commands.prompt_view import PromptJsonView, PromptTextView
from errors import PoolSaturated
from gateway.turns.media import Media
from tests.doors.envelopes import event, pushed, text
from tests.wire.terminals import Terminal, screen_of
from wire.events import EventChannel
from wire.messages import EventEnvelope

CALL = {"id": "c 1", "name": "exec", "input_preview": "ls -la"}


def tool(type_: str, **others: Any) -> EventEnvelope:
    return event(type_, {"call": CALL, **others})


def think(piece: str) -> EventEnvelope:
    return event("think_chunk", {"delta": piece})


def asks() -> EventEnvelope:
    return event("permission_required", {"call": CALL}, session="a b", channel=EventChannel.CONTROL)


OUTCOME = {"session": "s", "worker": "w1", "text": "the whole text", "stop_reason": "stop"}


def test_pieces_are_written_as_they_come_with_one_flush_a_batch_and_a_last_line_end() -> None:
    out, err = Terminal(), Terminal()
    view = PromptTextView(out, err, {})
    view.show(pushed(text("a"), text("b"), text("c")))
    assert (out.getvalue(), out.flushes) == ("abc", 1)
    view.end(OUTCOME)
    assert out.getvalue() == "abc\n"
    assert err.getvalue() == ""


def test_an_answer_that_came_in_no_pieces_is_shown_whole() -> None:
    out = Terminal()
    PromptTextView(out, Terminal(), {}).end(OUTCOME)
    assert out.getvalue() == "the whole text\n"


def test_an_answer_that_ends_its_last_line_gets_no_second_end() -> None:
    out = Terminal()
    view = PromptTextView(out, Terminal(), {})
    view.show(pushed(text("a\n")))
    view.end(OUTCOME)
    assert out.getvalue() == "a\n"


def test_an_empty_answer_prints_nothing() -> None:
    out = Terminal()
    PromptTextView(out, Terminal(), {}).end({**OUTCOME, "text": ""})
    assert out.getvalue() == ""


def test_tools_are_told_beside_the_text() -> None:
    out, err = Terminal(), Terminal()
    view = PromptTextView(out, err, {})
    tools = [tool("tool:start"), tool("tool:update", tail="x"), tool("tool:end"), tool("tool:error", error="no\nright")]
    view.show(pushed(text("a"), *tools, text("b")))
    view.end(OUTCOME)
    assert out.getvalue() == "a\nb\n"
    assert err.getvalue() == "· exec ls -la\n  ✓ ok\n✗ exec ls -la: failed: no\n"


def test_on_a_terminal_the_output_of_a_tool_is_seen_while_it_runs_and_then_what_came_of_it() -> None:
    terminal = Terminal(tty=True)
    view = PromptTextView(terminal, terminal, {"COLUMNS": "60"})
    view.show(
        pushed(tool("tool:start"), tool("tool:update", tail="one\n"), tool("tool:update", tail="one\ntwo \x1b[2J"))
    )
    assert screen_of(terminal.getvalue()) == ["· exec ls -la", "  │ one", "  │ two \\x1b[2J"]
    details = {"status": "running", "session_id": "calm-fox", "pid": 7}
    view.show(pushed(tool("tool:end", details=details), text("it goes on")))
    view.end(OUTCOME)
    ended = "  … still running in the background as calm-fox"
    assert screen_of(terminal.getvalue()) == ["· exec ls -la", ended, "it goes on"]


def test_a_session_that_waits_for_a_person_first_is_told_with_where_to_look() -> None:
    err = Terminal()
    accepted = {"mode": "followup", "lane": "main", "priority": 5}
    view = PromptTextView(Terminal(), err, {}, place=" --socket s")
    view.show(pushed(event("run:accepted", accepted), event("run:accepted", {**accepted, "awaits_person": True})))
    assert err.getvalue().splitlines() == [
        "! the session waits for a person's answer first; this shows what it asks:",
        "  pool sessions get --socket s ada",
    ]


def test_alerts_and_ended_commands_of_the_session_are_told_beside_the_answer() -> None:
    out, err = Terminal(), Terminal()
    alert = {"agent": "main", "to": "events", "text": "The disk is full.\nFree some room: " + "x" * 200, "media": []}
    ended = {"summary": "Exec completed (calm-fox, code 0) :: built"}
    view = PromptTextView(out, err, {})
    view.show(pushed(text("one "), event("alert", alert), event("exec_exit", ended, channel=EventChannel.MONITOR)))
    view.show(pushed(text("two")))
    view.end(OUTCOME)
    told = err.getvalue().splitlines()
    assert told[0].startswith("! main -> events: The disk is full. Free some room: xxx")
    assert told[0].endswith("x" * 200)
    assert told[1:] == ["· Exec completed (calm-fox, code 0) :: built"]
    assert out.getvalue().split() == ["one", "two"]


def test_a_resumed_session_and_a_shortened_one_are_told() -> None:
    err = Terminal()
    resumed = event("agent_resumed", {"strategy": "seal", "sealed": ["c1", "c2"]}, channel=EventChannel.MONITOR)
    shorter = [event("compaction:start", {"reason": "threshold"}), event("compaction:end", {"reason": "threshold"})]
    PromptTextView(Terminal(), err, {}).show(pushed(resumed, *shorter))
    assert err.getvalue().splitlines() == [
        "! the session was interrupted; tool calls sealed: 2",
        "· the conversation is being compacted (threshold)",
        "· the conversation is compacted",
    ]


def test_on_a_terminal_tools_get_a_line_of_their_own_and_are_dim() -> None:
    out, err = Terminal(tty=True), Terminal(tty=True)
    view = PromptTextView(out, err, {})
    view.show(pushed(text("a"), tool("tool:start")))
    assert (out.getvalue(), err.getvalue()) == ("a\n", "\x1b[2m· exec ls -la\x1b[0m\n")
    plain = Terminal(tty=True)
    PromptTextView(Terminal(tty=True), plain, {"NO_COLOR": "1"}).show(pushed(tool("tool:start")))
    assert plain.getvalue() == "· exec ls -la\n"


def test_an_answer_cannot_control_the_terminal_but_passes_a_pipe_unchanged() -> None:
    for tty, shown in ((True, "[2Ja\tb\n"), (False, "\x1b[2Ja\tb\n")):
        out = Terminal(tty=tty)
        PromptTextView(out, Terminal(), {}).show(pushed(text("\x1b[2Ja\tb\n")))
        assert out.getvalue() == shown


def test_as_json_each_event_is_a_line_and_the_outcome_the_last() -> None:
    out = Terminal()
    view = PromptJsonView(out)
    events = [text("a\né"), tool("tool:end")]
    view.show(pushed(*events))
    assert out.flushes == 1
    view.end(OUTCOME)
    told = out.getvalue().splitlines()
    assert [msgspec.json.decode(line, type=EventEnvelope) for line in told[:2]] == events
    lines = [msgspec.json.decode(line) for line in told]
    assert lines[-1] == {"outcome": OUTCOME}
    view.fail(PoolSaturated("full", retry_after=1.0))
    last = msgspec.json.decode(out.getvalue().splitlines()[-1])
    assert last == {"error": {"code": "saturated", "message": "full", "data": {"retry_after": 1.0}}}


def test_a_text_that_comes_as_a_snapshot_is_written_like_its_pieces() -> None:
    out = Terminal()
    snapshot = event("text_snapshot", {"from_seq": 2, "to_seq": 9, "text": "b, c"})
    PromptTextView(out, Terminal(), {}).show(pushed(text("a, "), snapshot, text(", d\n")))
    assert out.getvalue() == "a, b, c, d\n"


def test_the_reasoning_is_dim_beside_the_answer_and_only_where_it_is_wanted() -> None:
    out, err = Terminal(tty=True), Terminal(tty=True)
    view = PromptTextView(out, err, {}, thinking=True)
    view.show(pushed(think("hm"), think(", well"), text("yes"), think("or"), tool("tool:start")))
    view.close()
    assert out.getvalue() == "yes"
    assert err.getvalue() == ("\x1b[2mhm, well\x1b[0m\n\n\x1b[2mor\x1b[0m\n\x1b[2m· exec ls -la\x1b[0m\n")
    err = Terminal()
    PromptTextView(out, err, {}).show(pushed(think("hm")))
    assert err.getvalue() == ""


def test_a_call_that_needs_approval_is_shown_with_the_command_to_type_uncut() -> None:
    err = Terminal()
    view = PromptTextView(Terminal(), err, {}, place=" --socket " + "x" * 200)
    view.show(pushed(asks(), event("permission_decided", {"call_id": "c 1", "decision": "allow", "by": "uid:1"})))
    assert err.getvalue().splitlines() == [
        "? needs your approval: exec ls -la",
        f"  pool approve --socket {'x' * 200} -s 'a b' 'c 1'",
        f"  pool deny --socket {'x' * 200} -s 'a b' 'c 1' --note \"why not\"",
        "· allow c 1 by uid:1",
    ]


def test_trouble_is_told_unless_it_ends_the_run_and_other_events_are_not() -> None:
    err = Terminal()
    fatal = event("error", {"severity": "error", "message": "gone"}, channel=EventChannel.MONITOR)
    trouble = event("error", {"severity": "warn", "phase": "model", "message": "slow"}, channel=EventChannel.MONITOR)
    others = [event(name, {"a": 1}) for name in ("run:accepted", "run:start", "done", "token_usage")]
    PromptTextView(Terminal(), err, {}).show(pushed(trouble, fatal, *others))
    assert err.getvalue() == "! warn model: slow\n"


def test_files_that_come_beside_the_answer_are_named() -> None:
    out, err = Terminal(), Terminal()
    media = msgspec.to_builtins([Media("/w/plot.png", "image/png", 4096)])
    PromptTextView(out, err, {}).end({**OUTCOME, "media": media})
    assert (out.getvalue(), err.getvalue()) == ("the whole text\n", "· file /w/plot.png\n")
