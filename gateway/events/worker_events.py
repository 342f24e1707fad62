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

from wire.call_page import CallPage, bounded_page
from wire.events import EventType
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, ContextSize, PermissionOption, TokenUsage, ToolCallView, ToolEvent, UiRequest
from wire.run_text import excerpt

MAX_DATA_BYTES = 256 * 1024
"""Data of one event that has no shape of its own, or that must not be cut because it is a question."""

_MAX_ID = 256
_MAX_PREVIEW = 200
_MAX_TEXT = 2_000
_MAX_SEALED = 1_000
_MAX_OPTIONS, _MAX_OPTION_NAME = 16, 100

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class PublishedEvent(msgspec.Struct, frozen=True):
    """One event to publish; ``data`` encodes to a JSON object."""

    type: str
    data: Any


class MalformedEvent(ValueError):
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
    options: list[PermissionOption] = []


class _DecisionEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    call_id: str
    decision: str
    by: str | None = None
    note: str | None = None


def _call(call: ToolCallView) -> ToolCallView:
    return _cut(call, id=_MAX_ID, name=_MAX_ID, input_preview=_MAX_PREVIEW, state=_MAX_ID, approval=_MAX_ID)


def _tool(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, ToolEvent)
    limits = {"status": _MAX_ID, "session_id": _MAX_ID, "cwd": _MAX_TEXT, "exit_signal": _MAX_ID}
    facts = {
        "call": _call(event.call),
        "tail": event.tail and event.tail[-_MAX_TEXT:],
        "error": _truncate(event.error),
        "details": event.details and _cut(event.details, **limits),
        "result": event.result and excerpt(event.result),
    }
    return PublishedEvent(f"tool:{event.phase}", _without_none(facts))


def _tool_executed(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, _Executed)
    limits = {"reason": _MAX_TEXT, "decision": _MAX_ID, "note": _MAX_TEXT, "by": _MAX_TEXT}
    approval = event.approval and _cut(event.approval, **limits)
    return PublishedEvent(EventType.TOOL_EXECUTED, _Executed(_call(event.call), event.ok, approval))


def _permission_required(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, _Permission)
    shown = event.shown and bounded_page(event.shown)
    whole = [each for each in event.options if len(each.id) <= _MAX_ID]  # a part of an id chooses nothing
    options = [_cut(each, name=_MAX_OPTION_NAME, kind=_MAX_OPTION_NAME) for each in whole[:_MAX_OPTIONS]]
    published = _Permission(_call(event.call), _truncate(event.reason), shown, options)
    return PublishedEvent(EventType.PERMISSION_REQUIRED, published)


def _permission_decided(data: msgspec.Raw) -> PublishedEvent:
    limits = {"call_id": _MAX_ID, "decision": _MAX_ID, "by": _MAX_TEXT, "note": _MAX_TEXT}
    return PublishedEvent(EventType.PERMISSION_DECIDED, _cut(_decode(data, _DecisionEvent), **limits))


# --- questions of extensions ------------------------------------------------------------------------------------------


class _Resolved(msgspec.Struct, frozen=True):
    id: str
    reason: str = ""


def _ui_request(data: msgspec.Raw) -> PublishedEvent:
    content = _bounded(data)
    if isinstance(content, _TruncatedData):
        raise MalformedEvent("a question of that size or depth cannot be shown")
    return PublishedEvent(EventType.UI_REQUEST, msgspec.convert(content, UiRequest))


def _ui_resolved(data: msgspec.Raw) -> PublishedEvent:
    resolved = _cut(_decode(data, _Resolved), id=MAX_DATA_BYTES, reason=_MAX_ID)
    return PublishedEvent(EventType.UI_RESOLVED, resolved)


# --- what governs -----------------------------------------------------------------------------------------------------


class _CompactionEvent(msgspec.Struct, frozen=True):
    phase: Literal["start", "end"]
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class _ErrorEvent(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None
    source: str | None = None
    severity: str | None = None
    phase: str | None = None
    detail: msgspec.Raw = EMPTY


class _Resumed(msgspec.Struct, frozen=True, omit_defaults=True):
    sealed: list[str] = msgspec.field(default_factory=list)
    strategy: str | None = None
    cause: str | None = None
    error: str | None = None


class _Background(msgspec.Struct, frozen=True):
    running: int


_SEVERITIES = frozenset({"info", "warn", "error"})
_PHASES = frozenset({"model", "tool", "system", "lifecycle"})
_PHASE_OF_CODE = {"extension_error": "tool"}
"""Of the errors that a dialect reports with a code and without a phase; the others are about its protocol."""


def _compaction(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, _CompactionEvent)
    facts = {"reason": _truncate(event.reason), "aborted": event.aborted or None, "error": _truncate(event.error)}
    return PublishedEvent(f"compaction:{event.phase}", _without_none(facts))


def phase_of_compaction(data: msgspec.Raw) -> Literal["start", "end"]:
    """Whether a compaction begins or ends."""
    return _decode(data, _CompactionEvent).phase


def _error(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, _ErrorEvent)
    has_code = event.code is not None
    severity = event.severity if event.severity in _SEVERITIES else "warn" if has_code else "error"
    guessed = _PHASE_OF_CODE.get(event.code or "", "system" if has_code else "model")
    known = {"code": _truncate(event.code), "source": _truncate(event.source), "more": _bounded(event.detail)}
    facts = {
        "severity": severity,
        "phase": event.phase if event.phase in _PHASES else guessed,
        "message": event.message[:_MAX_TEXT],
        "detail": _without_none(known) or None,
    }
    return PublishedEvent(EventType.ERROR, _without_none(facts))


def _agent_resumed(data: msgspec.Raw) -> PublishedEvent:
    event = _decode(data, _Resumed)
    sealed = [call[:_MAX_ID] for call in event.sealed[:_MAX_SEALED]]
    words = map(_truncate, (event.strategy, event.cause, event.error))
    return PublishedEvent(EventType.AGENT_RESUMED, _Resumed(sealed, *words))


def _typed(type_: EventType, kind: type[msgspec.Struct]) -> Callable[[msgspec.Raw], PublishedEvent]:
    decode = msgspec.json.Decoder(kind).decode
    return lambda data: PublishedEvent(type_, decode(data))


def _pass_through(type_: EventType) -> Callable[[msgspec.Raw], PublishedEvent]:
    return lambda data: PublishedEvent(type_, _object(data))


READERS: dict[str, Callable[[msgspec.Raw], PublishedEvent]] = {
    "tool": _tool,
    "tool_executed": _tool_executed,
    "permission_required": _permission_required,
    "permission_decided": _permission_decided,
    "ui_request": _ui_request,
    "ui_resolved": _ui_resolved,
    "compaction": _compaction,
    "error": _error,
    "agent_resumed": _agent_resumed,
    "token_usage": _typed(EventType.TOKEN_USAGE, TokenUsage),
    "context_usage": _typed(EventType.CONTEXT_USAGE, ContextSize),
    "background": _typed(EventType.BACKGROUND, _Background),
    "todo_changed": _pass_through(EventType.TODO_CHANGED),
    "file_changed": _pass_through(EventType.FILE_CHANGED),
}
"""By the worker's name for the event. They raise ``wire.framing.DECODE_ERRORS`` and ``MalformedEvent``."""


def unknown_event(name: str, data: msgspec.Raw) -> PublishedEvent:
    """An event that this version does not know."""
    return PublishedEvent(f"worker:{name}", _bounded(data))


def warning_event(message: str) -> PublishedEvent:
    """What the supervisor did not understand."""
    facts = {"severity": "warn", "phase": "system", "message": message[:_MAX_TEXT]}
    return PublishedEvent(EventType.ERROR, facts)


# --- the queue --------------------------------------------------------------------------------------------------------


class _Queue(msgspec.Struct, frozen=True):
    """The bundled agent reports a number, the pi dialect the texts."""

    steers: int = 0
    steering: list[Any] = msgspec.field(default_factory=list)


def steers_of(data: msgspec.Raw) -> int:
    """How many steers wait in the worker, from a ``queue_update``."""
    queue = _decode(data, _Queue)
    return max(0, queue.steers) + len(queue.steering)


# --- in common --------------------------------------------------------------------------------------------------------


class _TruncatedData(msgspec.Struct, frozen=True):
    """Stands for data that is too large or too deep to show: its size, and how it begins."""

    bytes: int
    beginning: str


_MAX_DEPTH = 500
"""Levels of nesting that every version of Python decodes, with room for what readers add around them."""
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{}\]]')


def _decode(data: msgspec.Raw, kind: type[T]) -> T:
    return msgspec.json.decode(data, type=kind)


def _bounded(data: msgspec.Raw) -> Any:
    """The data, or a ``_TruncatedData`` where it is too large, too deep, or holds numbers beyond any range."""
    text = bytes(data)
    if len(text) <= MAX_DATA_BYTES and not _is_too_deep(text):
        with suppress(*DECODE_ERRORS):  # what cannot be read here cannot be read elsewhere
            return msgspec.json.decode(text)
    return _TruncatedData(len(text), text[: 4 * _MAX_TEXT].decode(errors="ignore")[:_MAX_TEXT])


def _is_too_deep(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") <= _MAX_DEPTH:
        return False
    steps = (1 if mark in b"[{" else -1 for mark in _BRACKETS.findall(text) if mark in b"[{}]")
    return max(accumulate(steps), default=0) > _MAX_DEPTH


def _object(data: msgspec.Raw) -> Any:
    """An object without a shape of its own, and without the worker's own run id and seq."""
    content = _bounded(data)
    if isinstance(content, dict):
        return {key: value for key, value in content.items() if key not in ("run_id", "seq")}
    if isinstance(content, _TruncatedData):
        return content
    raise MalformedEvent("it is no object")


def _cut(event: S, **limits: int) -> S:
    """The event with these texts cut."""
    texts = {name: _truncate(getattr(event, name), limit) for name, limit in limits.items()}
    return msgspec.structs.replace(event, **texts)


def _truncate(text: str | None, limit: int = _MAX_TEXT) -> str | None:
    return None if text is None else text[:limit]


def _without_none(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}
