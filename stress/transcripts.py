"""Reads the transcripts of a run: where each request's prompt stands, and how often."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stress.facts import PromptOccurrences
from stress.request_tracker import Nonces


class _PromptMessage(msgspec.Struct):
    role: str = ""
    content: Any = None


class _TranscriptLine(msgspec.Struct):
    message: _PromptMessage | None = None


_decode = msgspec.json.Decoder(_TranscriptLine).decode


def read_transcripts(
    folder: Path | None, owners: Mapping[str, str], sessions: Mapping[int, str], nonces: Nonces, t: float
) -> Iterator[PromptOccurrences]:
    """Read the files. ``owners``: path of a transcript to its session; ``sessions``: of each request.

    ``folder``: all transcripts in it are this run's; a file without an owner, such as one set aside, belongs to the
    session of its first prompt. None: only the owners' files are read.
    """
    own, foreign = Counter[int](), Counter[int]()
    paths = [Path(path) for path in owners] if folder is None else sorted(folder.rglob("*.jsonl"))
    for path in paths:
        session = owners.get(str(path))
        for number in _prompts(path, nonces):
            session = session or sessions.get(number)
            (own if sessions.get(number) == session else foreign)[number] += 1
    for number in sessions:
        yield PromptOccurrences(t=t, number=number, own=own[number], foreign=foreign[number])


def _prompts(path: Path, nonces: Nonces) -> Iterator[int]:
    """The requests whose prompts stand in a file; the last line may be cut off by a kill."""
    with path.open("rb") as lines:
        for line in lines:
            if b'"user"' not in line or not line.endswith(b"\n"):
                continue
            message = _decode(line).message
            if message is not None and message.role == "user":
                yield from nonces.find(_text_of(message.content)).numbers


def _text_of(content: Any) -> str:
    """The text of a message, of one or several parts, unescaped: an escape before a nonce would hide it."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in parts)
