"""The messages of a conversation, native or of pi, as the updates that tell them again. Pure."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from doors.acp.updates import text_block, tool_call_facts, update_line

_MAX_TEXT = 64 * 1024
"""Characters of a result that are sent again."""
_MAX_PREVIEW = 8_000


def replay_lines(session: str, messages: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The lines for these messages, oldest first. What has another shape, or is nested too deep, is passed over."""
    for number, message in enumerate(messages):
        with suppress(RecursionError):
            yield from _message_lines(session, number, message)


def _message_lines(session: str, number: int, message: dict[str, Any]) -> Iterator[bytes]:
    for kind, fields in _updates(message):
        if kind.endswith("_chunk"):
            fields["messageId"] = f"h{number}.{kind.partition('_')[0]}"
        yield update_line(session, kind, **fields)


def _updates(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    content = message.get("content")
    blocks = [text_block(content)] if isinstance(content, str) else content if isinstance(content, list) else []
    match message:
        case {"role": "toolResult", "toolCallId": str(call)}:
            yield _result(call, blocks, failed=message.get("isError") is True)
        case {"origin": "summary"}:
            return
        case {"role": "user" | "assistant" as role}:
            for block in blocks:
                yield from _block_updates(role, block)


def _block_updates(role: str, block: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    match block:
        case {"type": "text", "text": str(text)} if text:
            kind = "user_message_chunk" if role == "user" else "agent_message_chunk"
            yield kind, {"content": text_block(text)}
        case {"type": "thinking", "thinking": str(text)} if text:
            yield "agent_thought_chunk", {"content": text_block(text)}
        case {"type": "image", "data": str(data)}:
            image = {"type": "image", "data": data, "mimeType": block.get("mimeType", "image/png")}
            yield f"{'user' if role == 'user' else 'agent'}_message_chunk", {"content": image}
        case {"type": "tool_use", "id": str(call), "name": str(name)}:
            yield _call(call, name, block.get("input"))
        case {"type": "toolCall", "id": str(call), "name": str(name)}:
            yield _call(call, name, block.get("arguments"))
        case {"type": "tool_result", "tool_use_id": str(call)}:
            yield _result(call, block.get("content"), failed=block.get("is_error") is True)


def _call(call: str, name: str, given: Any) -> tuple[str, dict[str, Any]]:
    preview = msgspec.json.encode(given).decode()
    facts = tool_call_facts(call, name, preview[:_MAX_PREVIEW])
    return "tool_call", {**facts, "status": "in_progress"}


def _result(call: str, content: Any, *, failed: bool) -> tuple[str, dict[str, Any]]:
    blocks = [{"type": "content", "content": text_block(_result_text(content)[:_MAX_TEXT])}]
    status = "failed" if failed else "completed"
    return "tool_call_update", {"toolCallId": call, "status": status, "content": blocks}


def _result_text(content: Any) -> str:
    match content:
        case str():
            return content
        case {"ok": bool(is_ok)}:
            note = content.get("note")
            said = _result_text(content.get("data" if is_ok else "error"))
            return f"{said}\n{note}" if isinstance(note, str) else said
        case {"content": str(text)} | {"error": str(text)} | {"text": str(text)}:
            return text
        case list():
            return "\n".join(_result_text(part) for part in content)
        case None:
            return ""
        case _:
            return msgspec.json.encode(content).decode()
