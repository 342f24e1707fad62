"""``pool prompt`` on the terminal: the answer as it comes, tools as dim lines beside it, the outcome at the end."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from doors.control_client import ControlClient, Pushed
from doors.texts import clean, clean_stream
from errors import PoolError, RequestTimeout, RunAborted, UsageError, WorkerError

__all__ = ["JsonView", "TextView", "View", "follow_prompt", "read_text"]

_ABORT_TIMEOUT = 5.0
_SUPERVISOR_LATE = 10.0
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_PREVIEW_CHARS = 100


class TextView:
    """The answer's text on ``out``; what the agent does besides on ``err``."""

    def __init__(self, out: TextIO, err: TextIO, env: Mapping[str, str]) -> None:
        self._out = out
        self._err = err
        self._filter = clean_stream if out.isatty() else str
        self._is_shared = out.isatty() and err.isatty()
        self._is_coloured = err.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        self._at_line_start = True
        self._has_text = False

    def show(self, batch: list[Pushed]) -> None:
        """Draw a batch of events, and flush once."""
        for pushed in batch:
            data = pushed.data.get("data") or {}
            match pushed.data.get("type"):
                case "assistant_message":
                    self._write(data.get("partial", ""))
                case "tool":
                    self._tool(data)
        self._out.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """The last line end, and the whole text where no pieces of it came."""
        if not self._has_text:
            self._write(outcome.get("text", ""))
        self.close()

    def fail(self, error: PoolError) -> None:  # noqa: ARG002  # the command line prints the error itself
        """Leave the cursor at the start of a line."""
        self.close()

    def close(self) -> None:
        """End the line that was begun."""
        if not self._at_line_start:
            self._write("\n")
        self._out.flush()

    def _write(self, text: str) -> None:
        text = self._filter(text)
        if text:
            self._out.write(text)
            self._has_text = True
            self._at_line_start = text.endswith("\n")

    def _tool(self, data: dict[str, Any]) -> None:
        call = data.get("call") or {}
        match data.get("phase"):
            case "start":
                self._note(f"· {call.get('name')} {call.get('input_preview', '')}")
            case "error":
                self._note(f"! {call.get('name')} failed: {data.get('error')}")

    def _note(self, text: str) -> None:
        line = clean(text)[:_PREVIEW_CHARS]
        self._out.flush()
        if self._is_shared and not self._at_line_start:
            self._err.write("\n")
            self._at_line_start = True
        self._err.write(f"{_DIM}{line}{_PLAIN}\n" if self._is_coloured else f"{line}\n")
        self._err.flush()


class JsonView:
    """One JSON object a line: ``{"type", "data"}`` for each event, last ``{"outcome"}`` or ``{"error"}``."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, batch: list[Pushed]) -> None:
        """Write a batch of events, and flush once."""
        for pushed in batch:
            self._line(pushed.data)
        self._out.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """Write the outcome."""
        self._line({"outcome": outcome})
        self._out.flush()

    def fail(self, error: PoolError) -> None:
        """Write the error as the outcome."""
        self._line({"error": {"code": error.code, "message": error.message, "data": error.details}})
        self._out.flush()

    def close(self) -> None:
        """Nothing is left open between lines."""

    def _line(self, value: Any) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")


View = TextView | JsonView


def follow_prompt(client: ControlClient, params: dict[str, Any], view: View) -> dict[str, Any]:
    """Run a prompt, draw it as it comes, return its outcome. Raises PoolError where the run did not end well.

    Ctrl-C aborts the run, then goes on its way. It aborts this run, by a name of its own: when the run still waits, the
    session's first one is somebody else's.
    """
    run = uuid.uuid4().hex
    try:
        stream = client.stream("prompt", {**params, "run": run}, timeout=_patience(params.get("timeout")))
        for batch in stream:
            view.show(batch)
        outcome: dict[str, Any] = stream.result
    except PoolError as error:
        view.fail(error)
        raise
    except KeyboardInterrupt:
        view.close()
        _abort(client.path, {"session": params["session"], "run": run})
        raise
    view.end(outcome)
    _check(outcome)
    return outcome


def read_text(text: str, stdin: BinaryIO) -> str:
    """The text of a prompt: as given, or all of stdin for ``-``. Raises UsageError for what is no text."""
    raw = stdin.read() if text == "-" else os.fsencode(text)
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the prompt is not UTF-8 text: {exc}") from exc


def _patience(timeout: float | None) -> float | None:
    """How long to listen: the supervisor keeps the timeout itself, and only a stopped one is late by so much."""
    return None if timeout is None else timeout + _SUPERVISOR_LATE


def _abort(path: Path, run: dict[str, Any]) -> None:
    """Over a connection of its own: the interrupted one may have been left in the middle of a line."""
    with ControlClient(path) as client:
        client.call("abort", run, timeout=_ABORT_TIMEOUT)


def _check(outcome: dict[str, Any]) -> None:
    match outcome.get("stop_reason"):
        case "error":
            raise WorkerError(outcome.get("error") or "the agent ended the turn with an error", **_where(outcome))
        case "timeout":
            raise RequestTimeout("the turn took longer than its timeout and was ended", **_where(outcome))
        case "aborted":
            raise RunAborted("the turn was aborted", **_where(outcome))


def _where(outcome: dict[str, Any]) -> dict[str, Any]:
    return {"worker": outcome.get("worker"), "session": outcome.get("session")}
