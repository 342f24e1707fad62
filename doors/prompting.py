"""Runs as the terminal asks for them: start one and follow it, wait for one, and what to say of how it ended."""

import math
import os
import time
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from doors.control_client import ControlClient
from doors.event_texts import command_line
from doors.prompt_views import View
from doors.requests import given
from errors import (
    NoSupervisor,
    PoolClosed,
    PoolError,
    RequestTimeout,
    RunAborted,
    RunCutShort,
    RunInterrupted,
    UsageError,
    WorkerError,
    error_from_wire,
)

__all__ = ["check_outcome", "follow_prompt", "read_text", "run_params", "wait_for_run"]

_ABORT_TIMEOUT = 5.0
_SUPERVISOR_LATE = 10.0
_LOOK_SECONDS = 600.0


def run_params(text: str, *, key: str | None = None, **options: Any) -> dict[str, Any]:
    """The parameters of ``prompt`` and ``agent``; ``key`` names the run, else it gets a name that nobody else has."""
    return given(**options, text=text, run=uuid.uuid4().hex if key is None else key)


def follow_prompt(client: ControlClient, params: dict[str, Any], view: View, *, place: str = "") -> dict[str, Any]:
    """Run a prompt, draw it as it comes, return its outcome. Raises PoolError where the run did not end well.

    ``params`` of the method ``prompt``; its ``run`` is what the run is called. Ctrl-C aborts this run, then goes on
    its way. ``place``: the options by which shown commands find the supervisor.
    """
    stream = client.stream("prompt", params, timeout=_patience(params.get("timeout")))
    is_known = has_begun = False
    try:
        for batch in stream:
            is_known = True
            for pushed in batch:
                has_begun = has_begun or b'"type":"run:start"' in bytes(pushed.data.events)
                view.show(pushed.data.events)
                if _asks_a_person(bytes(pushed.data.events)):
                    stream.take_any_time()  # the run's clock stands still until somebody has answered
    except KeyboardInterrupt:
        view.close()
        _abort(client.path, params)
        raise
    except PoolError as exc:
        is_gone = _is_gone(exc, is_known=is_known)
        error = _lost_run(params["run"], params["session"], place, has_begun=has_begun) if is_gone else exc
        view.fail(error)
        raise error from exc
    outcome: dict[str, Any] = stream.result
    view.end(outcome)
    check_outcome(outcome)
    return outcome


def wait_for_run(
    client: ControlClient, run_id: str, session: str | None, timeout: float | None, *, place: str = ""
) -> dict[str, Any]:
    """The outcome of a run, however it ended. ``timeout`` in seconds, 0 = as it stands now, None = until it has ended.

    ``place``: the options by which shown commands find the supervisor. Raises RequestTimeout when it has not ended by
    then, RunInterrupted when the supervisor goes away before, and UsageError for a run that is not known.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        patience = max(0.0, min(deadline - time.monotonic(), _LOOK_SECONDS))
        params = given(run_id=run_id, session=session, timeout_ms=round(patience * 1000))
        try:
            outcome: dict[str, Any] = client.call("agent.wait", params, timeout=patience + _SUPERVISOR_LATE)
        except PoolError as exc:
            raise _lost_run(run_id, session, place) if _is_gone(exc, is_known=True) else exc from exc
        if outcome["status"] != "timeout":
            return outcome
        if time.monotonic() >= deadline:
            raise RequestTimeout(f"the run {run_id} has not ended yet; it goes on", run_id=run_id)


def read_text(text: str, stdin: BinaryIO) -> str:
    """The text of a prompt: as given, or all of stdin for ``-``. Raises UsageError for what is no text."""
    raw = stdin.read() if text == "-" else os.fsencode(text)
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the prompt is not UTF-8 text: {exc}") from exc


def check_outcome(outcome: dict[str, Any]) -> None:
    """Raise what the run failed with: PoolError of the kind it was; nothing where it ended well."""
    error = outcome.get("error")
    if error:
        raise error_from_wire(error["code"], error.get("message") or "the run failed", error.get("data"))
    match outcome.get("stop_reason"):
        case "error":
            raise WorkerError("the agent ended the turn with an error", **_where(outcome))
        case "timeout":
            raise RequestTimeout("the turn took longer than its timeout and was ended", **_where(outcome))
        case "aborted":
            raise RunAborted("the turn was aborted", **_where(outcome))
        case "max_steps":
            raise RunCutShort(
                "the agent was not done: it has made all model calls that one run may (max_steps); prompt the session "
                "again to let it go on",
                **_where(outcome),
            )
        case "length":
            raise RunCutShort(
                "the answer is cut off: it has reached the model's limit; prompt the session again to let it go on",
                **_where(outcome),
            )


def _patience(timeout: float | None) -> float | None:
    """How long to listen: the supervisor keeps the timeout itself, and only a stopped one is late by so much."""
    return None if not timeout else timeout + _SUPERVISOR_LATE


def _asks_a_person(events: bytes) -> bool:
    """Whether one of these envelopes is a question; inside of a text each quotation mark would have its backslash."""
    return b'"type":"permission_required"' in events or b'"type":"ui_request"' in events


def _abort(path: Path, params: dict[str, Any]) -> None:
    """Over a connection of its own: the interrupted one may have been left in the middle of a line."""
    with ControlClient(path) as client:
        client.call("abort", {"session": params["session"], "run": params["run"]}, timeout=_ABORT_TIMEOUT)


def _is_gone(error: PoolError, *, is_known: bool) -> bool:
    """Whether only the supervisor is gone, and not the run: a supervisor that stops cuts short whoever listens."""
    is_closed = isinstance(error, PoolClosed) and (is_known or "cut_short" in error.details)
    return is_closed or isinstance(error, NoSupervisor)


def _lost_run(run_id: str, session: str | None, place: str, *, has_begun: bool = False) -> RunInterrupted:
    """What to say of a run without an outcome whose supervisor is gone: what becomes of it, how to look for it."""
    look = command_line("wait", run_id, session=session, place=place)
    state = (
        "the supervisor went away in the run's turn; what the run did until then is in the conversation"
        if has_begun
        else "the supervisor went away before the run had ended; a run that still waits is kept and goes on when the "
        "supervisor is back"
    )
    return RunInterrupted(
        f"{state}; its outcome is told by: {look}",
        run_id=run_id,
        session=session,
    )


def _where(outcome: dict[str, Any]) -> dict[str, Any]:
    return {"worker": outcome.get("worker"), "session": outcome.get("session")}
