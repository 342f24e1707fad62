"""From what a ``session/update`` says to native words. Pure functions on decoded JSON."""

from itertools import islice
from typing import Any, Literal

import msgspec

from rpc.acp.bounds import MAX_OUTPUT, MAX_SENTENCE, bounded_json, sentence_of, word_of
from rpc.acp.messages import number_of, object_of, objects_of, text_of
from wire.messages import ToolCallView
from wire.run_text import excerpt

MAX_PREVIEW = 500
_MAX_PATHS = 256
_MAX_TODOS = 256
_CALL_COST = 1_024
"""Bytes of an object and its short texts."""
_MOST_COST = 1e9
_MOST_TOKENS = 10**12
_STATES = {"pending": "PENDING", "in_progress": "RUNNING", "completed": "COMPLETED", "failed": "FAILED"}
_OUTPUT_MEMBERS = ("output", "formatted_output", "aggregated_output", "stdout", "content", "text")
_SEVERITIES = {"info": "info", "warning": "warn", "error": "error"}

READING_KINDS = frozenset({"read", "search", "think", "fetch"})
"""Kinds of tools that change nothing."""


class AcpCall(msgspec.Struct, frozen=True):
    """A tool call as the agent has described it so far; ``input`` is JSON, ``paths`` are the files it changed."""

    id: str
    name: str = ""
    kind: str = "other"
    title: str = ""
    input: str = ""
    status: str = "pending"
    output: str = ""
    paths: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _CALL_COST + len(self.title) + len(self.input) + len(self.output) + sum(map(len, self.paths))

    def without_details(self) -> "AcpCall":
        """The same with little of its input and output."""
        given, output = excerpt(self.input, MAX_SENTENCE), excerpt(self.output, MAX_SENTENCE)
        return msgspec.structs.replace(self, input=given, output=output, paths=self.paths[:1])

    @property
    def preview(self) -> str:
        """Its title, else what it is called with, cut."""
        return (self.title or self.input)[:MAX_PREVIEW]

    @property
    def is_over(self) -> bool:
        """Whether it has its result."""
        return self.status in ("completed", "failed")

    def view(self, duration_ms: float | None = None, *, state: str | None = None) -> ToolCallView:
        """The call as events show it."""
        return ToolCallView(
            self.id, self.name or self.kind, self.preview, state or _STATES.get(self.status, "RUNNING"), duration_ms
        )


def merge_call(known: AcpCall | None, call_id: str, update: dict[str, Any]) -> AcpCall:
    """The call with what an update adds; content replaces what was there."""
    call = known or AcpCall(call_id)
    content = update.get("content")
    output, paths = _other_output(update), call.paths
    if isinstance(content, list):
        output = "\n".join(filter(None, map(_content_text, objects_of(content)))) or output
        paths = tuple(islice(dict.fromkeys(filter(None, map(_diff_path, objects_of(content)))), _MAX_PATHS))
    return msgspec.structs.replace(
        call,
        name=word_of(update.get("name")) or call.name,
        kind=word_of(update.get("kind")) or call.kind,
        title=sentence_of(update.get("title")) or call.title,
        input=bounded_json(given) if (given := update.get("rawInput")) else call.input,
        status=word_of(update.get("status")) or call.status,
        output=excerpt(output, MAX_OUTPUT) if output or isinstance(content, list) else call.output,
        paths=paths,
    )


def block_text(block: object) -> str:
    """A content block as text; what is no text is named."""
    content = object_of(block)
    kind = content.get("type")
    if kind == "text":
        return text_of(content.get("text")) or ""
    if kind == "resource_link":
        return f"[resource {text_of(content.get('uri')) or ''}]"
    if kind == "resource":
        return f"[resource {text_of(object_of(content.get('resource')).get('uri')) or ''}]"
    return f"[{kind}]" if isinstance(kind, str) else ""


def plan_todos(update: dict[str, Any]) -> list[dict[str, str]]:
    """The whole plan as a list of things to do."""
    return [
        {
            "id": str(number),
            "text": sentence_of(entry.get("content")) or "",
            "status": _todo_status(entry),
        }
        for number, entry in enumerate(objects_of(update.get("entries"))[:_MAX_TODOS], 1)
    ]


def _todo_status(entry: dict[str, Any]) -> str:
    status = entry.get("status")
    return status if status in ("in_progress", "completed") and isinstance(status, str) else "pending"


def notice_text(update: dict[str, Any]) -> tuple[str, str]:
    """Severity and words of a notice."""
    severity = _SEVERITIES.get(text_of(update.get("severity")) or "", "info")
    words = (sentence_of(update.get("title")), sentence_of(update.get("description")))
    return severity, ": ".join(filter(None, words))


def compaction_phase(update: dict[str, Any]) -> Literal["start", "end"] | None:
    """Where a compaction stands; None for a status that says neither."""
    status = text_of(update.get("status"))
    if status == "in_progress":
        return "start"
    return "end" if status in ("completed", "failed", "cancelled") else None


def used_tokens(result: dict[str, Any]) -> tuple[int, int] | None:
    """Input and output tokens in a turn's answer, those from caches included; None where it does not say."""
    usage = object_of(result.get("usage"))
    given = [_count_of(usage.get(name)) for name in ("inputTokens", "cachedReadTokens", "cachedWriteTokens")]
    output = _count_of(usage.get("outputTokens"))
    if output is None and not any(count is not None for count in given):
        return None
    return sum(count or 0 for count in given), output or 0


def _count_of(value: object) -> int | None:
    count = number_of(value)
    return count if count is not None and 0 <= count <= _MOST_TOKENS else None


def reported_cost(update: dict[str, Any]) -> float | None:
    """US dollars that a conversation has cost so far, as a ``usage_update`` tells it; None where it does not."""
    cost = object_of(update.get("cost"))
    amount = cost.get("amount")
    if cost.get("currency") != "USD" or isinstance(amount, bool) or not isinstance(amount, (int, float)):
        return None
    return float(amount) if 0 <= amount <= _MOST_COST else None


def _content_text(entry: dict[str, Any]) -> str:
    if entry.get("type") == "content":
        return block_text(entry.get("content"))
    if entry.get("type") == "diff":
        return f"[diff {text_of(entry.get('path')) or ''}]"
    return ""


def _diff_path(entry: dict[str, Any]) -> str | None:
    return sentence_of(entry.get("path")) if entry.get("type") == "diff" else None


def _other_output(update: dict[str, Any]) -> str:
    """The output where the content does not show it: the raw one, or that of a terminal of the agent's own."""
    raw = update.get("rawOutput")
    if isinstance(raw, str):
        return raw
    found = next((text for name in _OUTPUT_MEMBERS if (text := text_of(object_of(raw).get(name)))), None)
    terminal = object_of(object_of(update.get("_meta")).get("terminal_output"))
    return found or text_of(terminal.get("data")) or ""
