"""The latest messages of a conversation, read from its transcript without a worker."""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import UsageError
from wire.entries import STEER_PREFIX
from wire.files import open_regular
from wire.framing import DECODE_ERRORS

_MAX_BYTES = 16 * 1024 * 1024
"""Bytes read from the end of a transcript: twice the longest prompt; decoded they take more memory."""
_MAX_HEADER_BYTES = 64 * 1024
_read_limiter = trio.CapacityLimiter(2)
"""Transcripts that are in memory at a time."""


class _HistoryLine(msgspec.Struct):
    """A line of a native or a pi transcript, as far as both have it."""

    type: str = ""
    message: dict[str, Any] | None = None
    agent_session: str | None = None
    """Of a header of a transcript that the supervisor writes; a later one says that the agent has begun another."""
    id: Any = None


async def read_history(transcript: str, limit: int) -> list[dict[str, Any]]:
    """The last ``limit`` messages, oldest first, each in the agent's own shape; empty before the first answer.

    Where the latest one alone is longer than what is read, a line in brackets stands for it.

    What a person sent into a running turn is as the person wrote it, without the mark that the model reads before it.
    The first message that an agent got after it could not go on with the conversation has ``strategy`` ``refed``, as
    the event ``agent_resumed``.

    Raises UsageError when the file cannot be read, or is the journal of another conversation.
    """
    try:
        return await trio.to_thread.run_sync(_read_tail, Path(transcript), limit, limiter=_read_limiter)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        raise UsageError(f"the transcript {transcript} cannot be read: {exc}") from exc


def _check_owner(path: Path, header: bytes, decoder: msgspec.json.Decoder[_HistoryLine]) -> None:
    """Raises ValueError for a journal that is not that of the conversation that it is named after."""
    line = _HistoryLine()
    with suppress(*DECODE_ERRORS):
        line = decoder.decode(header)
    if line.agent_session is not None and line.id != path.name.removesuffix(".jsonl"):
        raise ValueError(f"it is the journal of another conversation, {line.id}")


def _read_tail(path: Path, limit: int) -> list[dict[str, Any]]:
    messages: deque[dict[str, Any]] = deque(maxlen=limit)
    decoder = msgspec.json.Decoder(_HistoryLine)
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        _check_owner(path, file.readline(_MAX_HEADER_BYTES), decoder)
        size = file.seek(0, 2)
        file.seek(max(0, size - _MAX_BYTES))
        if size > _MAX_BYTES:
            file.readline()  # the rest of a line that began before
        is_refed = False
        for raw in file:
            try:
                line = decoder.decode(raw)
            except DECODE_ERRORS:
                continue  # a torn last line; what mends it is the next resume
            if line.type == "message" and line.message is not None:
                messages.append({**line.message, "strategy": "refed"} if is_refed else line.message)
                is_refed = False
            elif line.type == "session" and line.agent_session is not None:
                is_refed = bool(messages)
    if not messages and size > _MAX_BYTES:
        mark = f"[... the latest message is left out: it is longer than {_MAX_BYTES >> 20} MiB; see {path} ...]"
        messages.append({"role": "assistant", "content": [{"type": "text", "text": mark}]})
    for message in messages:
        match message:
            case {"origin": "steer", "content": [{"type": "text", "text": str(text)} as block, *_]}:
                block["text"] = text.removeprefix(STEER_PREFIX)
    return list(messages)
