"""Errors of a chat-completions server, as ModelErrors with bounded, clean messages."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agent.models.base import ModelError

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_TRANSIENT_CODES = frozenset(map(str, _TRANSIENT))
_TRANSIENT_WORDS = re.compile(r"rate.?limit|overload|server.?error|unavailable|time.?out|try again", re.IGNORECASE)
_QUOTA_EXHAUSTED = re.compile(r"insufficient_quota|billing", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"context_length_exceeded|context.{0,20}(?:length|window|size)|prompt is too long|too many (?:input )?tokens"
    r"|input.{0,20} too long|maximum.{0,20}\btokens",
    re.IGNORECASE,
)
_SECONDS = re.compile(r"\s*[0-9]{1,9}(?:\.[0-9]{1,9})?\s*")
_TAGS = re.compile(r"<(script|style)\b[^<]{0,20000}</\1>|<[^<>]{0,1000}>", re.IGNORECASE)


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float, *, key_hint: str = ""
) -> ModelError:
    """The error of a response that is no answer. ``headers`` with lower-case names, ``now`` in Unix time.

    ``key_hint``: advice for a refused key.
    """
    message, code = _parse_error_body(body)
    said = f"{code or ''} {message}"
    advice = key_hint if status in {401, 403} else "check the model's name and the base URL" if status == 404 else ""
    hint = f" ({advice})" if advice else ""
    return ModelError(
        f"the model server answered {status}: {message or 'without a word'}{hint}",
        transient=status in _TRANSIENT and not _QUOTA_EXHAUSTED.search(said),
        retry_after=retry_after(headers, now),
        overflow=status in {400, 413, 422} and bool(_OVERFLOW.search(said)),
    )


def error_in_stream(error: Any) -> ModelError:
    """The error of an ``error`` object that came where a piece of the answer should have been."""
    message, code = _parse_error_object({"error": error})
    said = f"{code} {message}"
    transient = code in _TRANSIENT_CODES or bool(_TRANSIENT_WORDS.search(said))
    return ModelError(
        f"the model server failed: {message or code or 'without a word'}",
        transient=transient and not _QUOTA_EXHAUSTED.search(said),
        overflow=bool(_OVERFLOW.search(said)),
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the server wants to be asked again, at least 0; None when it does not say so readably."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value[:100]).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def tidy(text: str, limit: int = 500) -> str:
    """A foreign text for one line of a terminal: no markup, no control characters, bounded."""
    text = _TAGS.sub(" ", text[: 100 * limit])
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= limit else f"{text[:limit]}..."


def _number(value: str) -> float | None:
    return float(value) if _SECONDS.fullmatch(value) else None


def _parse_error_body(body: bytes) -> tuple[str, str]:
    """The message and the code of an error's body, each may be empty."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return tidy(body.decode(errors="replace")), ""
    return _parse_error_object(value)


def _parse_error_object(value: Any) -> tuple[str, str]:
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return tidy(str(value or "")), ""
    error = value.get("error") or value
    if not isinstance(error, dict):
        return tidy(str(error)), ""
    message = next((error[name] for name in ("message", "detail", "msg") if error.get(name)), "")
    code = next((error[name] for name in ("code", "type", "status") if error.get(name)), "")
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    return tidy(message), tidy(str(code), 100)
