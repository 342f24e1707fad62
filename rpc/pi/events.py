"""From one event of pi to the native events of the same meaning: pure functions, one per kind of event.

``stamp`` gives each native event the run it belongs to and the next number of the process's own sequence.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from rpc.pi.messages import PiLine, PiToolOutput, content_text, is_present
from rpc.run_events import Compaction, ErrorEvent, EventStamp, QueueUpdate, StampedEvent, StateChanged
from wire.framing import DECODE_ERRORS
from wire.messages import AssistantMessage, UiRequest

_MAX_PREVIEW = 500
_MAX_QUEUED_SHOWN = 100
_UI_FIELDS = (
    *("title", "message", "options", "placeholder", "prefill", "timeout", "text"),
    *("notify_type", "status_key", "status_text", "widget_key", "widget_lines", "widget_placement"),
)


class UiResolved(StampedEvent, frozen=True):
    """``ui_resolved``: a dialog is closed, by an answer or because of ``timeout`` or ``aborted``: take it down."""

    id: str
    reason: Literal["answered", "timeout", "aborted"]


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
