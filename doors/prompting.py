"""Runs as the terminal asks for them: start one and follow it, wait for one, and what to say of how it ended."""

import math
import os
import time
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from doors.control_client import ControlClient, NoSupervisor
from doors.event_texts import command_line
from doors.prompt_views import View
from doors.requests import given
from errors import (
    PoolClosed,
    PoolError,
    RequestTimeout,
    RunAborted,
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
    is_known = False
    try:
        for batch in stream:
            is_known = True
            for pushed in batch:
                view.show(pushed.data.events)
    except KeyboardInterrupt:
        view.close()
        _abort(client.path, params)
        raise
    except PoolError as exc:
        error = _explain_end(exc, params, place, is_known=is_known)
        view.fail(error)
        raise error from exc
    outcome: dict[str, Any] = stream.result
    view.end(outcome)
    check_outcome(outcome)
    return outcome


def wait_for_run(client: ControlClient, run_id: str, session: str | None, timeout: float | None) -> dict[str, Any]:
    """The outcome of a run, however it ended. ``timeout`` in seconds, 0 = as it stands now, None = until it has ended.

    Raises RequestTimeout when it has not ended by then, and UsageError for a run that is not known.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        patience = max(0.0, min(deadline - time.monotonic(), _LOOK_SECONDS))
        params = given(run_id=run_id, session=session, timeout_ms=round(patience * 1000))
        outcome: dict[str, Any] = client.call("agent.wait", params, timeout=patience + _SUPERVISOR_LATE)
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


def _patience(timeout: float | None) -> float | None:
    """How long to listen: the supervisor keeps the timeout itself, and only a stopped one is late by so much."""
    return None if not timeout else timeout + _SUPERVISOR_LATE


def _abort(path: Path, params: dict[str, Any]) -> None:
    """Over a connection of its own: the interrupted one may have been left in the middle of a line."""
    with ControlClient(path) as client:
        client.call("abort", {"session": params["session"], "run": params["run"]}, timeout=_ABORT_TIMEOUT)


def _explain_end(error: PoolError, params: dict[str, Any], place: str, *, is_known: bool) -> PoolError:
    """What to say of a run that ended without an outcome: when only the supervisor is gone, how to look for it."""
    is_gone = isinstance(error, NoSupervisor) or (isinstance(error, PoolClosed) and is_known)
    if not is_gone:
        return error
    run_id, session = params["run"], params["session"]
    look = command_line("wait", run_id, session=session, place=place)
    return RunInterrupted(
        f"the supervisor went away before the run had ended; when it is back, its outcome is told by: {look}",
        run_id=run_id,
        session=session,
    )


def _where(outcome: dict[str, Any]) -> dict[str, Any]:
    return {"worker": outcome.get("worker"), "session": outcome.get("session")}
