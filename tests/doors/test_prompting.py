"""How an answer looks on the terminal while it comes, and as JSON."""

import io
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from doors.control_client import Pushed
from doors.prompting import JsonView, TextView, follow_prompt, read_text
from errors import PoolSaturated, RequestTimeout, RunAborted, UsageError, WorkerError


class Terminal(io.StringIO):
    """Text that counts its flushes and may say that it is a terminal."""

    def __init__(self, *, tty: bool = False) -> None:
        super().__init__()
        self.tty = tty
        self.flushes = 0

    def isatty(self) -> bool:
        return self.tty

    def flush(self) -> None:
        self.flushes += 1


def text(piece: str) -> Pushed:
    return Pushed("event", {"type": "assistant_message", "data": {"partial": piece}})


def tool(phase: str, **others: Any) -> Pushed:
    call = {"id": "c1", "name": "exec", "input_preview": "ls -la"}
    return Pushed("event", {"type": "tool", "data": {"phase": phase, "call": call, **others}})


OUTCOME = {"session": "s", "worker": "w1", "text": "the whole text", "stop_reason": "stop"}


def test_pieces_are_written_as_they_come_with_one_flush_a_batch_and_a_last_line_end() -> None:
    out, err = Terminal(), Terminal()
    view = TextView(out, err, {})
    view.show([text("a"), text("b"), text("c")])
    assert (out.getvalue(), out.flushes) == ("abc", 1)
    view.end(OUTCOME)
    assert out.getvalue() == "abc\n"
    assert err.getvalue() == ""


def test_an_answer_that_came_in_no_pieces_is_shown_whole() -> None:
    out = Terminal()
    TextView(out, Terminal(), {}).end(OUTCOME)
    assert out.getvalue() == "the whole text\n"


def test_an_answer_that_ends_its_last_line_gets_no_second_end() -> None:
    out = Terminal()
    view = TextView(out, Terminal(), {})
    view.show([text("a\n")])
    view.end(OUTCOME)
    assert out.getvalue() == "a\n"


def test_an_empty_answer_prints_nothing() -> None:
    out = Terminal()
    TextView(out, Terminal(), {}).end({**OUTCOME, "text": ""})
    assert out.getvalue() == ""


def test_tools_are_told_beside_the_text() -> None:
    out, err = Terminal(), Terminal()
    view = TextView(out, err, {})
    view.show(
        [text("a"), tool("start"), tool("update", tail="x"), tool("end"), tool("error", error="no\nright"), text("b")]
    )
    view.end(OUTCOME)
    assert out.getvalue() == "ab\n"
    assert err.getvalue() == "· exec ls -la\n! exec failed: no right\n"


def test_on_a_terminal_tools_get_a_line_of_their_own_and_are_dim() -> None:
    out, err = Terminal(tty=True), Terminal(tty=True)
    view = TextView(out, err, {})
    view.show([text("a"), tool("start")])
    assert err.getvalue() == "\n\x1b[2m· exec ls -la\x1b[0m\n"
    plain = Terminal(tty=True)
    TextView(Terminal(tty=True), plain, {"NO_COLOR": "1"}).show([tool("start")])
    assert plain.getvalue() == "· exec ls -la\n"


def test_an_answer_cannot_control_the_terminal_but_passes_a_pipe_unchanged() -> None:
    for tty, shown in ((True, "[2Ja\tb\n"), (False, "\x1b[2Ja\tb\n")):
        out = Terminal(tty=tty)
        TextView(out, Terminal(), {}).show([text("\x1b[2Ja\tb\n")])
        assert out.getvalue() == shown


def test_as_json_each_event_is_a_line_and_the_outcome_the_last() -> None:
    out = Terminal()
    view = JsonView(out)
    view.show([text("a\n"), tool("end")])
    view.end(OUTCOME)
    lines = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert [line.get("type") for line in lines] == ["assistant_message", "tool", None]
    assert lines[-1] == {"outcome": OUTCOME}
    view.fail(PoolSaturated("full", retry_after=1.0))
    last = msgspec.json.decode(out.getvalue().splitlines()[-1])
    assert last == {"error": {"code": "saturated", "message": "full", "data": {"retry_after": 1.0}}}


class FakeStream:
    def __init__(self, outcome: Any) -> None:
        self.result = outcome

    def __iter__(self) -> Any:
        yield [text("hello")]
        if isinstance(self.result, BaseException):
            raise self.result


class FakeClient:
    """A client whose one prompt ends as told."""

    path = Path("/nowhere")

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.asked: list[tuple[str, Any]] = []
        self.patience: float | None = None

    def stream(self, method: str, params: Any, *, timeout: float | None) -> FakeStream:
        self.asked.append((method, params))
        self.patience = timeout
        return FakeStream(self.outcome)


def follow(outcome: Any) -> tuple[Any, str]:
    out = Terminal()
    client = FakeClient(outcome)
    result = follow_prompt(client, {"session": "s"}, TextView(out, Terminal(), {}))  # type: ignore[arg-type]  # a fake
    [(method, asked)] = client.asked
    assert (method, asked["session"], len(asked["run"])) == ("prompt", "s", 32)
    return result, out.getvalue()


@pytest.mark.parametrize(("timeout", "patience"), [(None, None), (3.0, 13.0)])
def test_a_supervisor_that_is_stopped_is_not_listened_to_for_ever(
    timeout: float | None, patience: float | None
) -> None:
    client = FakeClient(OUTCOME)
    params = {"session": "s", "timeout": timeout}
    follow_prompt(client, params, TextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert client.patience == patience


def test_ctrl_c_aborts_the_very_run_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    class AbortingClient(FakeClient):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_exc: object) -> None:
            """Nothing to close."""

        def call(self, method: str, params: Any, timeout: float) -> None:
            called.append((method, params))
            assert timeout > 0

    monkeypatch.setattr("doors.prompting.ControlClient", AbortingClient)
    client = FakeClient(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        follow_prompt(client, {"session": "s"}, TextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert called == [("abort", {"session": "s", "run": client.asked[0][1]["run"]})]


def test_a_prompt_that_ends_well_returns_its_outcome() -> None:
    assert follow(OUTCOME) == (OUTCOME, "hello\n")


@pytest.mark.parametrize(
    ("stop_reason", "error"), [("error", WorkerError), ("timeout", RequestTimeout), ("aborted", RunAborted)]
)
def test_a_turn_that_did_not_end_well_is_an_error_after_its_text(stop_reason: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        follow({**OUTCOME, "stop_reason": stop_reason})


def test_the_agents_own_words_for_its_error_are_kept() -> None:
    with pytest.raises(WorkerError, match="the model said no"):
        follow({**OUTCOME, "stop_reason": "error", "error": "the model said no"})


def test_an_error_of_the_pool_passes_through() -> None:
    with pytest.raises(PoolSaturated):
        follow(PoolSaturated("full"))


def test_the_prompt_is_the_argument_or_all_of_stdin() -> None:
    assert read_text("hé", io.BytesIO(b"unread")) == "hé"
    assert read_text("-", io.BytesIO(b"zwei\nZeilen")) == "zwei\nZeilen"
    with pytest.raises(UsageError, match="not UTF-8"):
        read_text("-", io.BytesIO(b"\xff"))
    with pytest.raises(UsageError, match="not UTF-8"):
        read_text("\udcff", io.BytesIO())
