"""Runs as the terminal asks for them: how they are followed, what is said of their end, how they are waited for."""

import io
from pathlib import Path
from typing import Any, Self

import pytest

from commands.prompt import check_outcome, follow_prompt, read_text, run_params, wait_for_run
from commands.prompt_view import PromptTextView
from doors.control.client_socket import PushData, ReceivedPush
from errors import (
    NoSupervisor,
    PoolClosed,
    PoolSaturated,
    RequestTimeout,
    RunAborted,
    RunCutShort,
    RunInterrupted,
    UsageError,
    WorkerError,
    WorkerExited,
)
from tests.doors.envelopes import event, pushed, text
from tests.wire.terminals import Terminal
from wire.messages import EventEnvelope

OUTCOME = {"session": "s", "run_id": "r", "status": "ok", "worker": "w1", "text": "the text", "stop_reason": "stop"}
ASKED = {"session": "s", "run": "r"}


class FakeStream:
    def __init__(self, outcome: Any, events: list[EventEnvelope]) -> None:
        self.result = outcome
        self.events = events
        self.is_bounded = True

    def __iter__(self) -> Any:
        for told in self.events:
            yield [ReceivedPush("events", PushData(events=pushed(told)))]
        if isinstance(self.result, BaseException):
            raise self.result

    def remove_deadline(self) -> None:
        self.is_bounded = False


class FakeClient:
    """A client whose one prompt ends as told."""

    path = Path("/nowhere")

    def __init__(self, outcome: Any, pieces: int = 1) -> None:
        self.outcome = outcome
        self.events = [text("hello")] * pieces
        self.streams: list[FakeStream] = []
        self.asked: list[tuple[str, Any]] = []
        self.patience: float | None = None

    def stream(self, method: str, params: Any, *, timeout: float | None) -> FakeStream:
        self.asked.append((method, params))
        self.patience = timeout
        self.streams.append(FakeStream(self.outcome, self.events))
        return self.streams[-1]


def follow(outcome: Any) -> tuple[Any, str]:
    out = Terminal()
    client = FakeClient(outcome)
    result = follow_prompt(client, ASKED, PromptTextView(out, Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert client.asked == [("prompt", ASKED)]
    return result, out.getvalue()


@pytest.mark.parametrize(("timeout", "patience"), [(None, None), (0, None), (3.0, 13.0)])
def test_a_supervisor_that_is_stopped_is_not_listened_to_for_ever(
    timeout: float | None, patience: float | None
) -> None:
    client = FakeClient(OUTCOME)
    params = {**ASKED, "timeout": timeout}
    follow_prompt(client, params, PromptTextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert client.patience == patience


@pytest.mark.parametrize(
    ("told", "is_bounded"),
    [
        (text('"type":"permission_required"'), True),
        (event("permission_required", {"call": {"id": "c1", "name": "exec"}}), False),
        (event("ui_request", {"id": "u1", "method": "confirm"}), False),
    ],
)
def test_while_a_person_is_asked_the_supervisor_may_take_any_time(told: EventEnvelope, *, is_bounded: bool) -> None:
    client = FakeClient(OUTCOME)
    client.events = [told]
    follow_prompt(client, {**ASKED, "timeout": 2.0}, PromptTextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert client.streams[0].is_bounded == is_bounded


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

    monkeypatch.setattr("commands.prompt.ControlClient", AbortingClient)
    client = FakeClient(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        follow_prompt(client, ASKED, PromptTextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake
    assert called == [("abort", ASKED)]


def test_a_prompt_that_ends_well_returns_its_outcome() -> None:
    assert follow(OUTCOME) == (OUTCOME, "hello\n")


@pytest.mark.parametrize(
    ("stop_reason", "error"),
    [
        ("error", WorkerError),
        ("timeout", RequestTimeout),
        ("aborted", RunAborted),
        ("max_steps", RunCutShort),
        ("length", RunCutShort),
    ],
)
def test_a_turn_that_did_not_end_well_is_an_error_after_its_text(stop_reason: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        follow({**OUTCOME, "stop_reason": stop_reason})


def test_what_a_run_failed_with_is_raised_as_the_error_it_was() -> None:
    error = {"code": "worker_exited", "message": "the worker exited", "data": {"worker": "w1", "sent": True}}
    with pytest.raises(WorkerExited, match="the worker exited") as caught:
        follow({**OUTCOME, "status": "error", "stop_reason": "error", "error": error})
    assert caught.value.details == {"worker": "w1", "sent": True}
    with pytest.raises(RunInterrupted):
        check_outcome({**OUTCOME, "status": "error", "error": {"code": "interrupted", "message": "restarted"}})


@pytest.mark.parametrize(
    ("error", "pieces", "raised"),
    [
        (NoSupervisor("gone"), 1, RunInterrupted),
        (NoSupervisor("gone"), 0, RunInterrupted),
        (PoolClosed("stopped in mid-run"), 1, RunInterrupted),
        (PoolClosed("stopped before it was said to be accepted", cut_short=True), 0, RunInterrupted),
        (PoolClosed("takes no new runs"), 0, PoolClosed),
    ],
)
def test_a_supervisor_that_goes_away_leaves_a_way_to_find_the_run(
    error: Exception, pieces: int, raised: type[Exception]
) -> None:
    client = FakeClient(error, pieces=pieces)
    view = PromptTextView(Terminal(), Terminal(), {})
    with pytest.raises(raised) as caught:
        follow_prompt(client, ASKED, view, place=" --socket /s")  # type: ignore[arg-type]  # a fake
    assert isinstance(caught.value, RunInterrupted) == str(caught.value).endswith("pool wait --socket /s -s s r")


@pytest.mark.parametrize(
    ("last", "words"),
    [("run:accepted", "a run that still waits is kept"), ("run:start", "went away in the run's turn")],
)
def test_a_supervisor_that_goes_away_is_told_by_what_becomes_of_the_run(last: str, words: str) -> None:
    client = FakeClient(NoSupervisor("gone"))
    client.events = [event(last, {}), text('say "type":"run:start"')]
    with pytest.raises(RunInterrupted, match=words):
        follow_prompt(client, ASKED, PromptTextView(Terminal(), Terminal(), {}))  # type: ignore[arg-type]  # a fake


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


def test_a_run_has_the_name_that_was_given_or_one_of_its_own() -> None:
    assert run_params("hi", key="k", session="s", role=None) == {"session": "s", "text": "hi", "run": "k"}
    assert run_params("hi", key="")["run"] == ""  # to be refused: a variable that was never set is no key
    names = {run_params("hi")["run"] for _ in range(10)}
    assert [len(name) for name in names] == [32] * 10


class WaitingClient:
    """Answers ``agent.wait`` one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    def call(self, method: str, params: Any, timeout: float) -> Any:
        assert (method, timeout > params["timeout_ms"] / 1000) == ("agent.wait", True)
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_a_run_is_waited_for_in_steps_until_it_has_ended() -> None:
    client = WaitingClient({"status": "timeout"}, {"status": "timeout"}, OUTCOME)
    assert wait_for_run(client, "r", None, None) == OUTCOME  # type: ignore[arg-type]  # a fake
    assert client.asked == [{"run_id": "r", "timeout_ms": 600_000}] * 3


def test_a_long_wait_is_never_one_long_request() -> None:
    client = WaitingClient(OUTCOME)
    wait_for_run(client, "r", "s", 100_000.0)  # type: ignore[arg-type]  # a fake
    assert client.asked == [{"run_id": "r", "session": "s", "timeout_ms": 600_000}]


def test_a_look_at_a_run_that_goes_on_is_a_timeout() -> None:
    with pytest.raises(RequestTimeout, match="the run r has not ended yet; it goes on"):
        wait_for_run(WaitingClient({"status": "timeout"}), "r", None, 0)  # type: ignore[arg-type]  # a fake


@pytest.mark.parametrize("error", [PoolClosed("cut short", cut_short=True), NoSupervisor("gone")])
def test_a_wait_whose_supervisor_goes_away_says_that_the_run_is_kept_and_how_to_wait_on(error: Exception) -> None:
    client = WaitingClient({"status": "timeout"}, error)
    with pytest.raises(RunInterrupted, match="a run that still waits is kept and goes on when") as caught:
        wait_for_run(client, "r", "s", None, place=" --socket /s")  # type: ignore[arg-type]  # a fake
    assert str(caught.value).endswith("pool wait --socket /s -s s r")


def test_a_wait_for_what_is_not_known_is_told_as_it_is() -> None:
    with pytest.raises(UsageError, match="no run"):
        wait_for_run(WaitingClient(UsageError("no run")), "r", None, None)  # type: ignore[arg-type]  # a fake
