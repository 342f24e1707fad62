"""What a person is told of a tool call: what it is, and in a line what came of it. Pure."""

import re
from typing import Any, NamedTuple

import msgspec

from wire.messages import CallDetails, ToolCallView
from wire.terminal import clean, span

__all__ = ["CallEnd", "call_words", "end_words", "error_words", "is_all_said"]

_OK, _ODD, _FAILED, _GOES_ON = "✓", "!", "✗", "…"
_CUT_OFF = re.compile(r'\{\s*"\w+"\s*:\s*"((?:[^"\\]|\\.)*)')
_PREVIEW = 200
"""Characters of an input in events; one of this length may have been cut."""
_NOTE = "(Command "
"""So begins the line in which ``exec`` says how a command ended."""


class CallEnd(NamedTuple):
    """A mark, and words behind it."""

    mark: str
    words: str


def call_words(name: object, preview: object) -> str:
    """A call's name and the beginning of its input: of an object the first text as it is, and the rest by name."""
    words = _input_words(preview) if isinstance(preview, str) else ""
    return clean(f"{name} {words}".strip())


def is_all_said(preview: object) -> bool:
    """Whether ``call_words`` shows the whole input: it was not cut, and fits a line unchanged."""
    if not isinstance(preview, str):
        return False
    words = preview
    if preview.startswith("{"):
        try:
            msgspec.json.decode(preview)
        except (msgspec.DecodeError, RecursionError):
            return False
        words = _input_words(preview)
    return len(preview) < _PREVIEW and words.isprintable() and "  " not in words


def end_words(call: ToolCallView, details: CallDetails | None) -> CallEnd:
    """What came of a call that has not failed: ``ok, code 0 (1.2 s)``."""
    details = details or CallDetails()
    took = _took(call)
    if details.status == "running":
        if call.name == "exec":
            return CallEnd(_GOES_ON, f"still running in the background as {clean(details.session_id)}{took}")
        return CallEnd(_GOES_ON, f"{clean(details.session_id)} still runs{took}")
    how = _how_it_ended(details)
    if details.status == "failed":
        return CallEnd(_FAILED, f"{_joined('failed', how)}{took}")
    if details.exit_code:
        return CallEnd(_ODD, f"ended with {how}{took}")
    return CallEnd(_OK, f"{_joined('ok', how)}{took}")


def error_words(call: ToolCallView, error: object, details: CallDetails | None) -> CallEnd:
    """What a call failed with, or was denied for; of a command's output the last line."""
    how = _how_it_ended(details or CallDetails())
    lines = [line for line in str(error).splitlines() if line.strip()]
    if how:
        said = [line for line in lines if not line.startswith(_NOTE)]
        reason = said[-1] if said else ""
    else:
        reason = (lines[0] if lines else "").removeprefix(f"The call of {call.name} was denied: ")
    verdict = "denied" if call.state == "DENIED" else _joined("failed", how)
    return CallEnd(_FAILED, clean(f"{verdict}{_took(call)}" + (f": {reason.strip()}" if reason else "")))


def _took(call: ToolCallView) -> str:
    return "" if call.duration_ms is None else f" ({span(call.duration_ms / 1000)})"


def _how_it_ended(details: CallDetails) -> str:
    if details.timed_out:
        return "timed out"
    if details.exit_signal is not None:
        return f"signal {clean(details.exit_signal)}"
    return "" if details.exit_code is None else f"code {details.exit_code}"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _input_words(preview: str) -> str:
    """Of what is no object, or was cut off in the midst of its second field, the text as it is."""
    try:
        given = msgspec.json.decode(preview)
    except (msgspec.DecodeError, RecursionError):
        found = _CUT_OFF.match(preview)
        return preview if found is None else _unescaped(found[1])
    if not isinstance(given, dict):
        return preview
    return " ".join(_field_words(number, name, value) for number, (name, value) in enumerate(given.items()))


def _field_words(number: int, name: str, value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if number == 0 and isinstance(value, str) else f"{name}={text}"


def _unescaped(text: str) -> str:
    """The beginning of a JSON string; what it was cut off in the midst of goes."""
    text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text)
    try:
        decoded: str = msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return text
    return f"{decoded.rstrip()}…"
