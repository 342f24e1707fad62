"""From one event of pi to the native events of the same meaning: pure functions, one per kind of event.

``stamp`` gives each native event the run it belongs to and the next number of the process's own sequence.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from rpc.pi.messages import PiLine, PiToolOutput, content_text, is_present
from wire.framing import DECODE_ERRORS
from wire.messages import AssistantMessage, ToolCallView, ToolEvent, UiRequest
from wire.run_text import excerpt

MAX_TAIL = 2_000
"""Characters of a tool's output that an event shows: the last ones."""
_MAX_PREVIEW = 500
MAX_MESSAGE_CHARS = 16_384
_MAX_QUEUED_SHOWN = 100
_UI_FIELDS = (
    *("title", "message", "options", "placeholder", "prefill", "timeout", "text"),
    *("notify_type", "status_key", "status_text", "widget_key", "widget_lines", "widget_placement"),
)


class EventStamp(NamedTuple):
    """What every event carries: its run, if any, and its number."""

    run_id: str | None
    seq: int


class _StampedEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    run_id: str | None = None
    seq: int = 0


class TokenUsageEvent(_StampedEvent, frozen=True, omit_defaults=False):
    """``token_usage``: tokens of the run so far."""

    input_tokens: int
    output_tokens: int


class RunStart(_StampedEvent, frozen=True):
    """``run_start``: the run's first sign of life."""


class Done(_StampedEvent, frozen=True):
    """``done``: the run is over, retries and compaction included."""

    stop_reason: str


class ToolExecuted(_StampedEvent, frozen=True):
    """``tool_executed``: a tool call has its result."""

    call: ToolCallView


class QueueUpdate(_StampedEvent, frozen=True):
    """``queue_update``: what waits in the worker, each text cut to 500 characters; the counts are whole."""

    steering: list[str] = []
    follow_up: list[str] = []
    pending: int = 0


class Compaction(_StampedEvent, frozen=True):
    """``compaction_event``: ``reason`` is manual, threshold or overflow."""

    phase: Literal["start", "end"]
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class StateChanged(_StampedEvent, frozen=True):
    """``state_changed``: a retry waits (``retrying``), is over (``retried``), or a setting has another value."""

    state: str | None = None
    attempt: int = 0
    max_attempts: int = 0
    delay: float = 0
    error: str | None = None
    thinking: str | None = None
    session_name: str | None = None


class UiResolved(_StampedEvent, frozen=True):
    """``ui_resolved``: a dialog is closed, by an answer or because of ``timeout`` or ``aborted``: take it down."""

    id: str
    reason: Literal["answered", "timeout", "aborted"]


class ErrorEvent(_StampedEvent, frozen=True):
    """``error``: something went wrong beside the requests; ``source`` names the extension, if it was one."""

    code: str
    message: str
    source: str | None = None


class RecordedMessage(_StampedEvent, frozen=True):
    """A whole assistant message in a run's result, its text cut to 16,384 characters."""

    text: str = ""
    stop_reason: str | None = None


_DELTA_EVENTS: dict[str, str] = {"text_delta": "assistant_message", "thinking_delta": "thinking"}
_text_decoder = msgspec.json.Decoder(str)
_output_decoder = msgspec.json.Decoder(PiToolOutput)


def message_delta(line: PiLine, stamp: Callable[[], EventStamp]) -> tuple[str, AssistantMessage] | None:
    """The new text of a ``message_update``; None for what only frames it, and for arguments of tool calls."""
    update = line.assistant_message_event
    if update is None or not update.delta:
        return None
    event = _DELTA_EVENTS.get(update.type)
    if event is None:
        return None
    run_id, seq = stamp()
    return event, AssistantMessage(update.delta, run_id, seq)


def tool_event(
    phase: Literal["start", "update", "end", "error"], call: ToolCallView, stamp: EventStamp, text: str | None = None
) -> ToolEvent:
    """``tool``; ``text``: all of its output so far, which is its tail, its error or its result."""
    tail = None if text is None else text[-MAX_TAIL:]
    match phase:
        case "end":
            return ToolEvent(phase, call, *stamp, result=text and excerpt(text))
        case "error":
            return ToolEvent(phase, call, *stamp, error=tail)
        case "start" | "update":
            return ToolEvent(phase, call, *stamp, tail)


def output_text(output: msgspec.Raw) -> str:
    """The text of a tool's output so far."""
    try:
        content = _output_decoder.decode(output).content
    except DECODE_ERRORS:
        return ""
    return content_text(content)


def preview(raw: msgspec.Raw) -> str:
    """The beginning of a raw value as text."""
    return bytes(memoryview(raw)[: 4 * _MAX_PREVIEW]).decode(errors="ignore")[:_MAX_PREVIEW]


def queue_update(line: PiLine, stamp: EventStamp) -> QueueUpdate:
    """Pi's two queues."""
    return QueueUpdate(
        steering=[text[:_MAX_PREVIEW] for text in line.steering[:_MAX_QUEUED_SHOWN]],
        follow_up=[text[:_MAX_PREVIEW] for text in line.follow_up[:_MAX_QUEUED_SHOWN]],
        pending=len(line.steering) + len(line.follow_up),
        run_id=stamp.run_id,
        seq=stamp.seq,
    )


def compaction_event(line: PiLine, stamp: EventStamp) -> Compaction:
    """``compaction_start`` and ``compaction_end``."""
    return Compaction(
        phase="start" if line.type == "compaction_start" else "end",
        reason=_raw_text(line.reason),
        aborted=line.aborted,
        error=line.error_message,
        run_id=stamp.run_id,
        seq=stamp.seq,
    )


def retry_event(line: PiLine, stamp: EventStamp) -> StateChanged:
    """``auto_retry_start`` and ``auto_retry_end``; ``delay`` in seconds."""
    starts = line.type == "auto_retry_start"
    return StateChanged(
        state="retrying" if starts else "retried",
        attempt=line.attempt,
        max_attempts=line.max_attempts,
        delay=line.delay_ms / 1000,
        error=line.error_message if starts else line.final_error,
        run_id=stamp.run_id,
        seq=stamp.seq,
    )


def extension_error(line: PiLine, stamp: EventStamp) -> ErrorEvent:
    """An extension's handler has raised."""
    where = f"{line.extension_path or 'an extension'} in {_raw_text(line.event) or 'a handler'}"
    message = f"{where}: {error_text(line)}"
    return ErrorEvent(
        code="extension_error", message=message, source=line.extension_path, run_id=stamp.run_id, seq=stamp.seq
    )


def error_text(line: PiLine) -> str:
    """Why pi refused, in its own words."""
    return _raw_text(line.error) or "pi gave no reason"


def ui_request(line: PiLine) -> UiRequest:
    """What an extension wants shown or asked, with the fields its method has."""
    fields: dict[str, Any] = {}
    for name in _UI_FIELDS:
        raw = getattr(line, name)
        if is_present(raw):
            fields[name] = _decode_any(raw)
    return UiRequest(id=str(line.id), method=line.method or "", fields=fields)


def _decode_any(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except DECODE_ERRORS:
        return preview(raw)


def _raw_text(raw: msgspec.Raw) -> str | None:
    """A raw value that should be a text; anything else as it stands, and whole: secrets in it are not hidden yet."""
    if not is_present(raw):
        return None
    try:
        return _text_decoder.decode(raw)
    except DECODE_ERRORS:
        return bytes(raw).decode(errors="replace")
