"""How a run ended, of its outcome or of its ``done`` event: in words, and as an error. Pure."""

from collections.abc import Mapping
from typing import Any

from errors import PoolError, RequestTimeout, RunAborted, RunCutShort, WorkerError, error_from_wire

_ABORTED = (RunAborted, "the turn was aborted")
_BAD_ENDS: dict[str, tuple[type[PoolError], str]] = {
    "error": (WorkerError, "the agent ended the turn with an error"),
    "timeout": (RequestTimeout, "the turn took longer than its timeout and was ended"),
    "aborted": _ABORTED,
    "interrupted": _ABORTED,
    "max_steps": (RunCutShort, "the agent was not done: it has made all model calls that one run may (max_steps)"),
    "length": (RunCutShort, "the answer is cut off: it has reached the model's limit"),
}
"""By ``stop_reason`` of an outcome, and by ``reason`` of a ``done`` event, which has the other only beside it."""
_MORE = "; prompt the session again to let it go on"


def describe_run_end(end: Mapping[str, Any]) -> str:
    """Why it ended other than well; empty where it ended well. ``end``: an outcome, or the data of ``done``."""
    error = end.get("error")
    if error:
        return str(error.get("message") or "the run failed")
    return _BAD_ENDS.get(_reason(end), (None, ""))[1]


def check_outcome(outcome: Mapping[str, Any]) -> None:
    """Raise what the run failed with: PoolError of the kind it was; nothing where it ended well."""
    error, text = outcome.get("error"), describe_run_end(outcome)
    if error:
        raise error_from_wire(error["code"], text, error.get("data"))
    if text:
        kind = _BAD_ENDS[_reason(outcome)][0]
        more = _MORE if kind is RunCutShort else ""
        raise kind(text + more, worker=outcome.get("worker"), session=outcome.get("session"))


def _reason(end: Mapping[str, Any]) -> str:
    return str(end.get("stop_reason") or end.get("reason") or "")
