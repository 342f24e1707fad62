"""Pure decisions about a conversation's history: calls left open, and what a compaction keeps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from wire.entries import ToolResultBlock, ToolUseBlock, TranscriptMessage

__all__ = ["Compaction", "failure", "open_calls", "plan_compaction", "seal"]

KEPT_TURNS = 2
_SUMMARY_CHARS = 200
_SUMMARY_LINES = 200


def failure(error: str, error_type: str, *, retryable: bool = False, **more: Any) -> dict[str, Any]:
    """What the model gets to see of a call that failed."""
    return {"ok": False, "error": error, "error_type": error_type, "retryable": retryable, **more}


def open_calls(messages: Sequence[TranscriptMessage]) -> list[ToolUseBlock]:
    """Tool calls without a result, in call order."""
    calls = {call.id: call for message in messages for call in message.calls}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                calls.pop(block.tool_use_id, None)
    return list(calls.values())


def seal(calls: Sequence[ToolUseBlock]) -> TranscriptMessage:
    """One message that gives each of these calls the result it never got, because its worker ended."""
    results = [ToolResultBlock(call.id, _sealed(call), is_error=True) for call in calls]
    return TranscriptMessage("user", [*results], origin="tool")


def _sealed(call: ToolUseBlock) -> dict[str, Any]:
    error = f"The call of {call.name} has no result: the session was interrupted; sealed automatically."
    advice = ["Check for side effects before calling it again: it may have run in part or to its end."]
    return failure(error, "aborted", retryable=True, recommendations=advice, _autoSealed=True)


class Compaction(NamedTuple):
    """The summary of the old turns, and the index of the first message that is kept."""

    summary: str
    kept: int


def plan_compaction(messages: Sequence[TranscriptMessage], instructions: str | None = None) -> Compaction | None:
    """Keep the last two turns and tell the older ones in a line each; None when there are none.

    A cut lies before a prompt, never between a tool call and its result.
    """
    starts = [index for index, message in enumerate(messages) if _begins_turn(message)]
    if len(starts) <= KEPT_TURNS:
        return None
    kept = starts[-KEPT_TURNS]
    lines = [line for message in messages[:kept] for line in _lines(message)]
    title = "Summary of the conversation so far" + (f" ({instructions})" if instructions else "")
    skipped = [f"({len(lines) - _SUMMARY_LINES} older messages left out)"] if len(lines) > _SUMMARY_LINES else []
    return Compaction("\n".join([f"[{title}]", *skipped, *lines[-_SUMMARY_LINES:]]), kept)


def _begins_turn(message: TranscriptMessage) -> bool:
    return message.role == "user" and message.origin in {"prompt", "follow_up"}


def _lines(message: TranscriptMessage) -> list[str]:
    if message.origin == "summary":
        return message.text.split("\n")[1:]
    text = " ".join(message.text[: 4 * _SUMMARY_CHARS].split())
    more = "..." if len(message.text) > _SUMMARY_CHARS else ""
    return [f"{message.role}: {text[:_SUMMARY_CHARS]}{more}"] if text else []
