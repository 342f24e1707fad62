"""A prompt on the terminal: how its answer looks while it comes, how its run is followed and ends."""

import io
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from commands.options import read_text
from commands.prompt import follow_prompt, run_params
from commands.prompt_view import PromptJsonView, PromptTextView
from commands.run_ends import check_outcome
from doors.control.client_socket import PushData, ReceivedPush
from errors import (
    NoSupervisor,
    PoolClosed,
    PoolError,
    PoolSaturated,
    RequestTimeout,
    RunAborted,
    RunCutShort,
    RunInterrupted,
    UsageError,
    WorkerError,
    WorkerExited,
)
from gateway.turns.media import Media
from tests.doors.envelopes import event, pushed, text
from tests.wire.terminals import Terminal, screen_of
from wire.events import EventChannel
from wire.messages import EventEnvelope

CALL = {"id": "c 1", "name": "exec", "input_preview": "ls -la"}
OUTCOME = {"session": "s", "run_id": "r", "status": "ok", "worker": "w1", "text": "the whole text"}
OUTCOME["stop_reason"] = "stop"
ASKED = {"session": "s", "run": "r"}


def tool(type_: str, **others: Any) -> EventEnvelope:
    return event(type_, {"call": CALL, **others})


def think(piece: str) -> EventEnvelope:
    return event("think_chunk", {"delta": piece})


def monitor(type_: str, **data: Any) -> EventEnvelope:
    return event(type_, data, channel=EventChannel.MONITOR)


# --- the text view: events in, stdout and stderr out -----------------------------------------------------------------

TOOLS = [tool("tool:start"), tool("tool:update", tail="x"), tool("tool:end"), tool("tool:error", error="no\nright")]
ACCEPTED = {"mode": "followup", "lane": "main", "priority": 5}
SNAPSHOT = event("text_snapshot", {"from_seq": 2, "to_seq": 9, "text": "b, c"})
ASKS = event("permission_required", {"call": CALL}, session="a b", channel=EventChannel.CONTROL)
DECIDED = event("permission_decided", {"call_id": "c 1", "decision": "allow", "by": "uid:1"})
NEEDS_APPROVAL = f"""\
? needs your approval: exec ls -la
  pool approve --socket {"x" * 200} -s 'a b' 'c 1'
  pool deny --socket {"x" * 200} -s 'a b' 'c 1' --note "why not"
· allow c 1 by uid:1
"""
SHORTENED = """\
! the session was interrupted; tool calls sealed: 2
· the conversation is being compacted (threshold)
· the conversation is compacted
"""
WAITS = """\
! the session waits for a person's answer first; this shows what it asks:
  pool sessions show --socket s ada
"""
ALERT = {"agent": "main", "to": "events", "text": "The disk is full.\nFree some room: " + "x" * 200, "media": []}
MEDIA = msgspec.to_builtins([Media("/w/plot.png", "image/png", 4096)])


@pytest.mark.parametrize(
    ("events", "end", "place", "out", "err"),
    [
        pytest.param([text("a"), text("b"), text("c")], {}, "", "abc\n", "", id="pieces get a last line end"),
        pytest.param([text("a\n")], {}, "", "a\n", "", id="a last line that has ended gets no second end"),
        pytest.param([], {}, "", "the whole text\n", "", id="an answer without pieces is shown whole"),
        pytest.param([], {"text": ""}, "", "", "", id="an empty answer prints nothing"),
        pytest.param(
            [text("a"), *TOOLS, text("b")], {}, "", "a\nb\n", "· exec ls -la\n  ✓ ok\n✗ exec ls -la: failed: no\n",
            id="tools are shown beside the text",
        ),
        pytest.param([text("a, "), SNAPSHOT, text(", d\n")], {}, "", "a, b, c, d\n", "", id="a snapshot is text"),
        pytest.param([think("hm"), text("a")], {}, "", "a\n", "", id="no reasoning where it is not wanted"),
        pytest.param(
            [event("run:accepted", ACCEPTED), event("run:accepted", {**ACCEPTED, "awaits_person": True})],
            {"text": ""}, " --socket s", "", WAITS, id="a session that waits for a person first",
        ),
        pytest.param(
            [text("one "), event("alert", ALERT), monitor("exec_exit", summary="Exec completed :: built"), text("two")],
            {}, "", "one two\n",
            f"! main -> events: The disk is full. Free some room: {'x' * 200}\n· Exec completed :: built\n",
            id="alerts and ended commands of the session",
        ),
        pytest.param(
            [monitor("agent_resumed", strategy="seal", sealed=["c1", "c2"]),
             *(event(f"compaction:{when}", {"reason": "threshold"}) for when in ("start", "end"))],
            {"text": ""}, "", "", SHORTENED, id="a resumed session and a shortened one",
        ),
        pytest.param(
            [ASKS, DECIDED], {"text": ""}, f" --socket {'x' * 200}", "", NEEDS_APPROVAL,
            id="a call that needs approval, with the command to type uncut",
        ),
        pytest.param(
            [monitor("error", severity="warn", phase="model", message="slow"),
             monitor("error", severity="error", message="gone"),
             *(event(name, {"a": 1}) for name in ("run:accepted", "run:start", "done", "token_usage"))],
            {"text": ""}, "", "", "! warn model: slow\n", id="trouble, unless it ends the run, and no other events",
        ),
        pytest.param([], {"media": MEDIA}, "", "the whole text\n", "· file /w/plot.png\n", id="files are named"),
    ],
)  # fmt: skip
def test_an_answer_is_written_as_it_comes_with_notes_beside_it(
    events: list[EventEnvelope], end: dict[str, Any], place: str, out: str, err: str
) -> None:
    stdout, stderr = Terminal(), Terminal()
    view = PromptTextView(stdout, stderr, {}, place=place)
    view.show(pushed(*events))
    assert err or stdout.flushes <= 1, "one flush a batch of text"
    view.end({**OUTCOME, **end})
    assert (stdout.getvalue(), stderr.getvalue()) == (out, err)


def test_on_a_terminal_the_output_of_a_tool_is_seen_while_it_runs_and_then_what_came_of_it() -> None:
    terminal = Terminal(tty=True)
    view = PromptTextView(terminal, terminal, {"COLUMNS": "60"})
    updates = [tool("tool:update", tail=tail) for tail in ("one\n", "one\ntwo \x1b[2J")]
    view.show(pushed(tool("tool:start"), *updates))
    assert screen_of(terminal.getvalue()) == ["· exec ls -la", "  │ one", "  │ two \\x1b[2J"]
    details = {"status": "running", "session_id": "calm-fox", "pid": 7}
    view.show(pushed(tool("tool:end", details=details), text("it goes on")))
    view.end(OUTCOME)
    ended = "  … still running in the background as calm-fox"
    assert screen_of(terminal.getvalue()) == ["· exec ls -la", ended, "it goes on"]


def test_on_a_terminal_notes_have_lines_of_their_own_and_are_dim_and_an_answer_cannot_control_it() -> None:
    out, err = Terminal(tty=True), Terminal(tty=True)
    PromptTextView(out, err, {}).show(pushed(text("\x1b[2Ja\tb"), tool("tool:start")))
    assert (out.getvalue(), err.getvalue()) == ("[2Ja\tb\n", "\x1b[2m· exec ls -la\x1b[0m\n")
    plain, pipe = Terminal(tty=True), Terminal()
    PromptTextView(pipe, plain, {"NO_COLOR": "1"}).show(pushed(text("\x1b[2Ja\tb\n"), tool("tool:start")))
    assert (pipe.getvalue(), plain.getvalue()) == ("\x1b[2Ja\tb\n", "· exec ls -la\n")


def test_the_reasoning_is_dim_beside_the_answer_where_it_is_wanted() -> None:
    out, err = Terminal(tty=True), Terminal(tty=True)
    view = PromptTextView(out, err, {}, thinking=True)
    view.show(pushed(think("hm"), think(", well"), text("yes"), think("or"), tool("tool:start")))
    view.close()
    assert out.getvalue() == "yes"
    assert err.getvalue() == "\x1b[2mhm, well\x1b[0m\n\n\x1b[2mor\x1b[0m\n\x1b[2m· exec ls -la\x1b[0m\n"


def test_as_json_each_event_is_a_line_and_the_outcome_or_error_the_last() -> None:
    out = Terminal()
    view = PromptJsonView(out)
    events = [text("a\né"), tool("tool:end")]
    view.show(pushed(*events))
    assert out.flushes == 1
    view.end(OUTCOME)
    view.fail(PoolSaturated("full", retry_after=1.0))
    *lines, ended, failed = out.getvalue().splitlines()
    assert [msgspec.json.decode(line, type=EventEnvelope) for line in lines] == events
    assert msgspec.json.decode(ended) == {"outcome": OUTCOME}
    error = {"code": "saturated", "message": "full", "data": {"retry_after": 1.0}}
    assert msgspec.json.decode(failed) == {"error": error}


# --- how a run is followed -------------------------------------------------------------------------------------------


class FakeStream:
    def __init__(self, outcome: Any, events: list[EventEnvelope]) -> None:
        self.result = outcome
        self.events = events
        self.is_bounded = True

    def __iter__(self) -> Any:
        for each in self.events:
            yield [ReceivedPush("events", PushData(events=pushed(each)))]
        if isinstance(self.result, BaseException):
            raise self.result

    def remove_deadline(self) -> None:
        self.is_bounded = False


class FakeClient:
    """A client whose one prompt brings these events and this end; ``calls``: what else it was asked."""

    path = Path("/nowhere")

    def __init__(self, outcome: Any, *events: EventEnvelope) -> None:
        self.stream_ = FakeStream(outcome, list(events))
        self.asked: list[tuple[str, Any]] = []
        self.patience: float | None = None

    def stream(self, method: str, params: Any, *, timeout: float | None) -> FakeStream:
        self.asked.append((method, params))
        self.patience = timeout
        return self.stream_

    def follow(self, place: str = "", **params: Any) -> Any:
        view = PromptTextView(Terminal(), Terminal(), {})
        return follow_prompt(self, {**ASKED, **params}, view, place=place)  # type: ignore[arg-type]  # a fake


def test_a_run_behind_its_sessions_turn_says_so_once_with_how_long_that_has_run() -> None:
    err = io.StringIO()
    view = PromptTextView(io.StringIO(), err, {"NO_COLOR": "1"}, place=" --socket s")
    session = {"key": "ada", "turn": "t1", "waiting": 2, "waits_for": None, "pending_permissions": []}
    for age in (7.0, 9.0):
        view.waits({**session, "turn_age": age})
    view.waits({**session, "waiting": 1, "turn_age": 11.0, "pending_permissions": [{"id": "c1"}]})
    view.waits({**session, "waiting": 0})
    first = "… waits: the turn that runs in the session comes first; "
    assert err.getvalue().splitlines() == [
        f"{first}2 messages wait behind it (running for 7.0 s)",
        f"{first}it waits for a person: pool approve --socket s -s ada c1 (running for 11 s)",
        "… a worker is there",
    ]


@pytest.mark.parametrize(("timeout", "patience"), [(None, None), (0, None), (3.0, 13.0)])
def test_a_supervisor_that_is_stopped_is_not_listened_to_for_ever(
    timeout: float | None, patience: float | None
) -> None:
    client = FakeClient(OUTCOME, text("hello"))
    assert client.follow(timeout=timeout) == OUTCOME
    assert (client.asked, client.patience) == ([("prompt", {**ASKED, "timeout": timeout})], patience)


@pytest.mark.parametrize(
    ("asks", "is_bounded"),
    [
        (text('"type":"permission_required"'), True),
        (event("permission_required", {"call": {"id": "c1", "name": "exec"}}), False),
        (event("ui_request", {"id": "u1", "method": "confirm"}), False),
    ],
)
def test_while_a_person_is_asked_the_supervisor_may_take_any_time(asks: EventEnvelope, *, is_bounded: bool) -> None:
    client = FakeClient(OUTCOME, asks)
    client.follow(timeout=2.0)
    assert client.stream_.is_bounded == is_bounded


@pytest.mark.parametrize(
    ("aborted", "said"), [(True, "the run is aborted\n"), (False, "the run does not go on any more\n")]
)
def test_ctrl_c_aborts_the_very_run_that_was_asked_for_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str, *, aborted: bool
) -> None:
    called = []

    class AbortingClient(FakeClient):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_exc: object) -> None:
            """Nothing to close."""

        def call(self, method: str, params: Any, timeout: float) -> Any:
            assert timeout > 0
            called.append((method, params))
            return {"aborted": aborted}

    monkeypatch.setattr("commands.prompt.ControlClient", AbortingClient)
    with pytest.raises(KeyboardInterrupt):
        FakeClient(KeyboardInterrupt()).follow()
    assert called == [("abort", ASKED)]
    assert capsys.readouterr().err == said


EXITED = {"code": "worker_exited", "message": "the worker exited", "data": {"worker": "w1", "sent": True}}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        *[({"stop_reason": "error"}, WorkerError), ({"stop_reason": "timeout"}, RequestTimeout)],
        *[({"stop_reason": "aborted"}, RunAborted), ({"stop_reason": "max_steps"}, RunCutShort)],
        *[({"stop_reason": "length"}, RunCutShort), ({"status": "error", "error": EXITED}, WorkerExited)],
        ({"status": "error", "error": {"code": "interrupted", "message": "restarted"}}, RunInterrupted),
    ],
)
def test_a_turn_that_did_not_end_well_is_the_error_it_was(changes: dict[str, Any], error: type[PoolError]) -> None:
    with pytest.raises(error) as caught:
        check_outcome({**OUTCOME, **changes})
    if error is WorkerExited:
        assert (caught.value.message, caught.value.details) == (EXITED["message"], EXITED["data"])


@pytest.mark.parametrize(
    ("error", "events", "words"),
    [
        (NoSupervisor("gone"), [event("run:accepted", {})], "a run that still waits is kept"),
        (NoSupervisor("gone"), [], "pool wait"),
        (NoSupervisor("gone"), [event("run:start", {}), text('"type":"run:accepted"')], "went away in the run's turn"),
        (PoolClosed("stopped in mid-run"), [text("hello")], "pool wait"),
        (PoolClosed("stopped before it was accepted", cut_short=True), [], "pool wait"),
        (PoolClosed("takes no new runs"), [], None),
        (PoolSaturated("full"), [text("hello")], None),
    ],
)
def test_a_supervisor_that_goes_away_leaves_a_way_to_find_the_run_and_other_errors_pass_through(
    error: PoolError, events: list[EventEnvelope], words: str | None
) -> None:
    with pytest.raises(RunInterrupted if words else type(error), match=words) as caught:
        FakeClient(error, *events).follow(place=" --socket /s")
    assert str(caught.value).endswith("pool wait --socket /s -s s r") == bool(words)


def test_the_prompt_is_the_argument_or_all_of_stdin() -> None:
    assert read_text("hé", io.BytesIO(b"unread")) == "hé"
    assert read_text("-", io.BytesIO(b"zwei\nZeilen")) == "zwei\nZeilen"
    for argument, stdin in (("-", b"\xff"), ("\udcff", b"")):
        with pytest.raises(UsageError, match="not UTF-8"):
            read_text(argument, io.BytesIO(stdin))


def test_a_run_has_the_name_that_was_given_or_one_of_its_own() -> None:
    assert run_params("hi", key="k", session="s", role=None) == {"session": "s", "text": "hi", "run": "k"}
    assert run_params("hi", key="")["run"] == ""  # to be refused: a variable that was never set is no key
    names = {run_params("hi")["run"] for _ in range(10)}
    assert [len(name) for name in names] == [32] * 10


def test_a_prompt_is_part_of_the_trace_that_its_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setenv("TRACEPARENT", parent)
    monkeypatch.setenv("TRACESTATE", "a=1")
    assert run_params("hi", key="k") == {"text": "hi", "run": "k", "traceparent": parent, "tracestate": "a=1"}
    monkeypatch.setenv("TRACEPARENT", "of another form")
    assert run_params("hi", key="k") == {"text": "hi", "run": "k"}
