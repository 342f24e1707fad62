"""The single events of a worker, one reader each: which channel and type they have for front ends, and which data.

Everything a worker can make long is cut: ids and names, previews, tails and messages; data without a shape of its own
is replaced by its beginning.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from typing import Any, Literal, TypeVar

import msgspec

from wire.call_parts import CallPage, bounded
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, CallDetails, Channel, TokenUsage, ToolCallView, ToolEvent, UiRequest
from wire.texts import excerpt

MAX_DATA_BYTES = 256 * 1024
"""Data of one event that has no shape of its own, or that must not be cut because it is a question."""

_MAX_ID = 256
_MAX_PREVIEW = 200
_MAX_TEXT = 2_000
_MAX_SEALED = 1_000

T = TypeVar("T")


class Single(msgspec.Struct, frozen=True):
    """One event to publish; ``data`` encodes to a JSON object."""

    channel: Channel
    type: str
    data: Any


class Malformed(ValueError):
    """The worker's data makes no sense."""


# --- tools ------------------------------------------------------------------------------------------------------------


class _Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a call needed approval, and the decision: by whom, when (Unix time in seconds), with which note."""

    reason: str | None = None
    decision: str | None = None
    note: str | None = None
    by: str | None = None
    ts: float | None = None


class _Executed(msgspec.Struct, frozen=True, omit_defaults=True):
    call: ToolCallView
    ok: bool | None = None
    approval: _Approval | None = None


class _Permission(msgspec.Struct, frozen=True, omit_defaults=True):
    call: ToolCallView
    reason: str | None = None
    shown: CallPage | None = None


class _Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    call_id: str
    decision: str
    by: str | None = None
    note: str | None = None


def _call(call: ToolCallView) -> ToolCallView:
    return ToolCallView(
        id=call.id[:_MAX_ID],
        name=call.name[:_MAX_ID],
        input_preview=call.input_preview[:_MAX_PREVIEW],
        state=call.state[:_MAX_ID],
        duration_ms=call.duration_ms,
        approval=_cut(call.approval, _MAX_ID),
    )


def _tool(data: msgspec.Raw) -> Single:
    event = _decode(data, ToolEvent)
    facts = {
        "call": _call(event.call),
        "tail": event.tail and event.tail[-_MAX_TEXT:],
        "error": _cut(event.error),
        "details": _details(event.details),
        "result": event.result and excerpt(event.result),
    }
    return Single(Channel.PROGRESS, f"tool:{event.phase}", _present(facts))


def _details(details: CallDetails | None) -> CallDetails | None:
    return details and msgspec.structs.replace(
        details,
        status=_cut(details.status, _MAX_ID),
        session_id=_cut(details.session_id, _MAX_ID),
        cwd=_cut(details.cwd),
        exit_signal=_cut(details.exit_signal, _MAX_ID),
    )


def _tool_executed(data: msgspec.Raw) -> Single:
    event = _decode(data, _Executed)
    return Single(Channel.MONITOR, "tool_executed", _Executed(_call(event.call), event.ok, _approval(event.approval)))


def _approval(given: _Approval | None) -> _Approval | None:
    return given and _Approval(
        _cut(given.reason), _cut(given.decision, _MAX_ID), _cut(given.note), _cut(given.by), given.ts
    )


def _permission_required(data: msgspec.Raw) -> Single:
    event = _decode(data, _Permission)
    shown = event.shown and bounded(event.shown)
    return Single(Channel.CONTROL, "permission_required", _Permission(_call(event.call), _cut(event.reason), shown))


def _permission_decided(data: msgspec.Raw) -> Single:
    event = _decode(data, _Decision)
    decision = _Decision(event.call_id[:_MAX_ID], event.decision[:_MAX_ID], _cut(event.by), _cut(event.note))
    return Single(Channel.CONTROL, "permission_decided", decision)


# --- questions of extensions ------------------------------------------------------------------------------------------


class _Resolved(msgspec.Struct, frozen=True):
    id: str
    reason: str = ""


def _ui_request(data: msgspec.Raw) -> Single:
    content = _bounded(data)
    if isinstance(content, _Beginning):
        raise Malformed("a question of that size or depth can be shown to nobody")
    return Single(Channel.CONTROL, "ui_request", msgspec.convert(content, UiRequest))


def _ui_resolved(data: msgspec.Raw) -> Single:
    event = _decode(data, _Resolved)
    return Single(Channel.CONTROL, "ui_resolved", _Resolved(event.id[:MAX_DATA_BYTES], event.reason[:_MAX_ID]))


# --- what governs -----------------------------------------------------------------------------------------------------


class _Compaction(msgspec.Struct, frozen=True):
    phase: Literal["start", "end"]
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class _Error(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None
    source: str | None = None
    severity: str | None = None
    phase: str | None = None
    detail: msgspec.Raw = EMPTY


class _Resumed(msgspec.Struct, frozen=True, omit_defaults=True):
    sealed: list[str] = msgspec.field(default_factory=list)
    strategy: str | None = None


class _Background(msgspec.Struct, frozen=True):
    running: int


_SEVERITIES = frozenset({"info", "warn", "error"})
_PHASES = frozenset({"model", "tool", "system", "lifecycle"})
_PHASE_OF_CODE = {"extension_error": "tool"}
"""Of the errors that a dialect reports with a code and without a phase; the others are about its protocol."""


def _compaction(data: msgspec.Raw) -> Single:
    event = _decode(data, _Compaction)
    facts = {"reason": _cut(event.reason), "aborted": event.aborted or None, "error": _cut(event.error)}
    return Single(Channel.PROGRESS, f"compaction:{event.phase}", _present(facts))


def phase_of_compaction(data: msgspec.Raw) -> Literal["start", "end"]:
    """Whether a compaction begins or ends."""
    return _decode(data, _Compaction).phase


def _error(data: msgspec.Raw) -> Single:
    event = _decode(data, _Error)
    has_code = event.code is not None
    severity = event.severity if event.severity in _SEVERITIES else "warn" if has_code else "error"
    guessed = _PHASE_OF_CODE.get(event.code or "", "system" if has_code else "model")
    known = {"code": _cut(event.code), "source": _cut(event.source), "more": _bounded(event.detail)}
    facts = {
        "severity": severity,
        "phase": event.phase if event.phase in _PHASES else guessed,
        "message": event.message[:_MAX_TEXT],
        "detail": _present(known) or None,
    }
    return Single(Channel.MONITOR, "error", _present(facts))


def _agent_resumed(data: msgspec.Raw) -> Single:
    event = _decode(data, _Resumed)
    sealed = [call[:_MAX_ID] for call in event.sealed[:_MAX_SEALED]]
    return Single(Channel.MONITOR, "agent_resumed", _Resumed(sealed, _cut(event.strategy)))


def _token_usage(data: msgspec.Raw) -> Single:
    return Single(Channel.MONITOR, "token_usage", _decode(data, TokenUsage))


def _background(data: msgspec.Raw) -> Single:
    return Single(Channel.MONITOR, "background", _decode(data, _Background))


def _as_it_is(type_: str) -> Callable[[msgspec.Raw], Single]:
    return lambda data: Single(Channel.MONITOR, type_, _object(data))


READERS: dict[str, Callable[[msgspec.Raw], Single]] = {
    "tool": _tool,
    "tool_executed": _tool_executed,
    "permission_required": _permission_required,
    "permission_decided": _permission_decided,
    "ui_request": _ui_request,
    "ui_resolved": _ui_resolved,
    "compaction": _compaction,
    "error": _error,
    "agent_resumed": _agent_resumed,
    "token_usage": _token_usage,
    "background": _background,
    "todo_changed": _as_it_is("todo_changed"),
    "file_changed": _as_it_is("file_changed"),
}
"""By the worker's name for the event. They raise ``wire.framing.DECODE_ERRORS`` and ``Malformed``."""


def unknown(name: str, data: msgspec.Raw) -> Single:
    """An event that this version does not know."""
    return Single(Channel.MONITOR, f"worker:{name}", _bounded(data))


def warning(message: str) -> Single:
    """What the supervisor did not understand."""
    facts = {"severity": "warn", "phase": "system", "message": message[:_MAX_TEXT]}
    return Single(Channel.MONITOR, "error", facts)


# --- the queue --------------------------------------------------------------------------------------------------------


class _Queue(msgspec.Struct, frozen=True):
    """The bundled agent tells numbers, the pi dialect texts."""

    steers: int = 0
    steering: list[Any] = msgspec.field(default_factory=list)


def steers_of(data: msgspec.Raw) -> int:
    """How many steers wait in the worker, from a ``queue_update``."""
    queue = _decode(data, _Queue)
    return max(0, queue.steers) + len(queue.steering)


# --- in common --------------------------------------------------------------------------------------------------------


class _Beginning(msgspec.Struct, frozen=True):
    """Stands for data that nobody could be shown: how much it was, and how it begins."""

    bytes: int
    beginning: str


_DEEPEST = 500
"""Levels of nesting that every version of Python decodes, with room for what readers add around them."""
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{}\]]')


def _decode(data: msgspec.Raw, kind: type[T]) -> T:
    return msgspec.json.decode(data, type=kind)


def _bounded(data: msgspec.Raw) -> Any:
    """The data, or a ``_Beginning`` where it is too large, too deep, or holds numbers beyond any range."""
    text = bytes(data)
    if len(text) <= MAX_DATA_BYTES and not _is_too_deep(text):
        with suppress(*DECODE_ERRORS):  # what cannot be read here cannot be read elsewhere
            return msgspec.json.decode(text)
    return _Beginning(len(text), text[: 4 * _MAX_TEXT].decode(errors="ignore")[:_MAX_TEXT])


def _is_too_deep(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") <= _DEEPEST:
        return False
    steps = (1 if mark in b"[{" else -1 for mark in _BRACKETS.findall(text) if mark in b"[{}]")
    return max(accumulate(steps), default=0) > _DEEPEST


def _object(data: msgspec.Raw) -> Any:
    """An object without a shape of its own, and without the worker's own run id and seq."""
    content = _bounded(data)
    if isinstance(content, dict):
        return {key: value for key, value in content.items() if key not in ("run_id", "seq")}
    if isinstance(content, _Beginning):
        return content
    raise Malformed("it is no object")


def _cut(text: str | None, limit: int = _MAX_TEXT) -> str | None:
    return None if text is None else text[:limit]


def _present(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}
