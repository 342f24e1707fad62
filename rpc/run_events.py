"""Native events of a run that all dialects write in the same form, each with the run it belongs to and its number."""

from typing import Literal, NamedTuple

import msgspec

from wire.messages import ToolCallView, ToolEvent
from wire.run_text import excerpt

MAX_TAIL = 2_000
"""Characters of a tool's output that an event shows: the last ones."""
MAX_MESSAGE_CHARS = 16_384


class EventStamp(NamedTuple):
    """What every event carries: its run, if any, and its number."""

    run_id: str | None
    seq: int


class StampedEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The members that every event has."""

    run_id: str | None = None
    seq: int = 0


class TokenUsageEvent(StampedEvent, frozen=True, omit_defaults=False):
    """``token_usage``: tokens of the run so far, and their cost in US dollars where the agent tells it."""

    input_tokens: int
    output_tokens: int
    cost: float | msgspec.UnsetType = msgspec.UNSET


class ContextUsage(StampedEvent, frozen=True, omit_defaults=False):
    """``context_usage``: tokens of the conversation's context, and how many there may be."""

    used: int
    size: int


class RunStart(StampedEvent, frozen=True):
    """``run_start``: the run's first sign of life."""


class Done(StampedEvent, frozen=True):
    """``done``: the run is over, retries and compaction included."""

    stop_reason: str


class ToolExecuted(StampedEvent, frozen=True):
    """``tool_executed``: a tool call has its result."""

    call: ToolCallView


class QueueUpdate(StampedEvent, frozen=True):
    """``queue_update``: what waits in the worker, each text cut to 500 characters; the counts are whole."""

    steering: list[str] = []
    follow_up: list[str] = []
    pending: int = 0


class Compaction(StampedEvent, frozen=True):
    """``compaction_event``: ``reason`` is manual, threshold or overflow."""

    phase: Literal["start", "end"]
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class StateChanged(StampedEvent, frozen=True):
    """``state_changed``: a retry waits (``retrying``), is over (``retried``), or a setting has another value."""

    state: str | None = None
    attempt: int = 0
    max_attempts: int = 0
    delay: float = 0
    error: str | None = None
    thinking: str | None = None
    session_name: str | None = None
    model: str | None = None
    mode: str | None = None


class ErrorEvent(StampedEvent, frozen=True):
    """``error``: something went wrong beside the requests; ``source`` names the extension, if it was one.

    ``severity``: info, warn or error, where the dialect knows.
    """

    code: str
    message: str
    source: str | None = None
    severity: str | None = None


class RecordedMessage(StampedEvent, frozen=True):
    """A whole assistant message in a run's result, its text cut to 16,384 characters."""

    text: str = ""
    stop_reason: str | None = None


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
