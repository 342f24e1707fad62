"""The result of a tool call, for the model: ``{ok, data | error, error_type, retryable, note, recommendations}``."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from agent.tools.base import ErrorType, ToolError, ToolOutput

CallResult: TypeAlias = dict[str, Any]


def success(output: str | ToolOutput) -> CallResult:
    """A success. ``details`` are for people and programs, not for the model."""
    if isinstance(output, str):
        return {"ok": True, "data": output}
    return {"ok": True, "data": output.text} | ({"details": output.details} if output.details else {})


def failure(
    error: str,
    error_type: ErrorType,
    *,
    retryable: bool = False,
    note: str | None = None,
    recommendations: Sequence[str] = (),
    **more: Any,
) -> CallResult:
    """A failure; ``retryable``: the same call may succeed later."""
    result: CallResult = {"ok": False, "error": error, "error_type": error_type, "retryable": retryable}
    if note:
        result["note"] = note
    if recommendations:
        result["recommendations"] = list(recommendations)
    return result | more


def of_error(error: ToolError) -> CallResult:
    """The failure of a ToolError."""
    return failure(
        str(error),
        error.error_type,
        retryable=error.retryable,
        note=error.note,
        recommendations=error.recommendations,
        **({"details": error.details} if error.details else {}),
    )


def of_exception(error: Exception) -> CallResult:
    """The failure of a call whose tool raised."""
    return failure(
        f"{type(error).__name__}: {error}",
        "runtime",
        recommendations=["The tool itself is broken here: try another input or another tool."],
        _thrownError=True,
    )


def timed_out(name: str, seconds: float) -> CallResult:
    """The failure of a call that was stopped at its timeout."""
    return failure(
        f"{name} timed out after {seconds:g} s",
        "runtime",
        retryable=True,
        recommendations=["Ask for less at once.", "Check what it has done already before calling it again."],
    )


def denied(name: str, reason: str, note: str | None = None) -> CallResult:
    """The result of a denial by a rule, a hook or a person, with their note."""
    return failure(
        f"The call of {name} was denied: {reason}.",
        "denied",
        note=note,
        recommendations=["Do not repeat the call as it is.", "Go another way, or ask the user."],
    )


def aborted(reason: str, *, had_begun: bool) -> CallResult:
    """The result of a call that the end of its run cut off; ``reason``: ``aborted``, ``timeout``."""
    advice = "Check for side effects: it had begun." if had_begun else "It had not begun."
    return failure(f"The call was ended before it was done ({reason}).", "aborted", retryable=True, note=advice)


def text_of(result: CallResult) -> str:
    """The result as text for people: its data or its error, then the note."""
    said = result["data"] if result["ok"] else result["error"]
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return f"{text}\n{result['note']}" if isinstance(result.get("note"), str) else text


def is_json(value: object) -> bool:
    """Whether it can be encoded: a hook or a tool may return anything."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True
