"""Bounds for what a tool tells the model: 50 kB and 2,000 lines, cut at line ends; the full text goes to a file."""

import os
import uuid
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["MAX_BYTES", "MAX_LINES", "TAIL_CHARS", "Excerpt", "TailBuffer", "excerpt", "shorten"]

MAX_BYTES = 50_000
MAX_LINES = 2_000
TAIL_CHARS = 2_000
_KEPT_FILES = 100
"""Full texts that are kept; the oldest go first."""

_Side = Literal["start", "end"]


class Excerpt(NamedTuple):
    """What is left of a text within the bounds, and how many lines it has of how many."""

    text: str
    lines: int
    of_lines: int
    is_whole: bool


def excerpt(text: str, keep: _Side) -> Excerpt:
    """The start or the end of a text, whole lines where one fits; of a longer line as much as fits."""
    encoded = text.encode(errors="replace")
    lines = BytesIO(encoded).readlines()
    if len(encoded) <= MAX_BYTES and len(lines) <= MAX_LINES:
        return Excerpt(text, len(lines), len(lines), is_whole=True)
    chosen = _fitting(lines if keep == "start" else reversed(lines))
    if not chosen:
        piece = lines[0][:MAX_BYTES] if keep == "start" else lines[-1][-MAX_BYTES:]
        return Excerpt(piece.decode(errors="ignore"), 1, len(lines), is_whole=False)
    ordered = chosen if keep == "start" else chosen[::-1]
    return Excerpt(b"".join(ordered).decode(), len(ordered), len(lines), is_whole=False)


def shorten(text: str, *, keep: _Side, outputs: str, lost: bool = False) -> str:
    """The text, or its start or end with a line that says what was cut and where the full text is.

    ``outputs`` is the directory for full texts ("": nothing is kept); ``lost`` says that ``text`` is itself only the
    end of something longer. Raises OSError.
    """
    part = excerpt(text, keep)
    if part.is_whole:
        return f"[the beginning of the output was dropped]\n{text}" if lost else text
    where = f"; the {'rest of what was kept' if lost else 'full text'} is in {_save(text, outputs)}" if outputs else ""
    note = f"[cut: the {keep} is shown, {part.lines} of {'the last ' if lost else ''}{part.of_lines} lines{where}]"
    if keep == "end":
        return f"{note}\n{part.text}"
    return f"{part.text}{'' if part.text.endswith(chr(10)) else chr(10)}{note}"


def _fitting(lines: Iterable[bytes]) -> list[bytes]:
    chosen: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line)
        if size > MAX_BYTES or len(chosen) == MAX_LINES:
            break
        chosen.append(line)
    return chosen


def _save(text: str, outputs: str) -> str:
    directory = Path(outputs)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"output-{uuid.uuid4().hex[:12]}.txt"
    path.write_text(text, errors="replace")
    entries = sorted(os.scandir(directory), key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[:-_KEPT_FILES]:
        os.unlink(entry.path)  # noqa: PTH108 - what scandir gives is a string
    return str(path)


class TailBuffer:
    """Keeps the end of an output of any length: the end is where errors are."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._chunks: deque[str] = deque()
        self._kept = 0
        self._total = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes; what is no UTF-8 is replaced."""
        self._total += len(data)
        text = self._decoder.decode(data, final)
        self._chunks.append(text)
        self._kept += len(text)
        while self._kept - len(self._chunks[0]) >= MAX_BYTES:
            self._kept -= len(self._chunks.popleft())

    def tail(self) -> str:
        """The last 2,000 characters."""
        parts: list[str] = []
        size = 0
        for chunk in reversed(self._chunks):
            parts.append(chunk)
            size += len(chunk)
            if size >= TAIL_CHARS:
                break
        return "".join(reversed(parts))[-TAIL_CHARS:]

    def text(self) -> str:
        """The output, or its end with a first line that says what was cut."""
        text = "".join(self._chunks)
        lines = text.splitlines(keepends=True)[-MAX_LINES:]
        size = sum(len(line.encode()) for line in lines)
        while len(lines) > 1 and size > MAX_BYTES:
            size -= len(lines.pop(0).encode())
        kept = "".join(lines).encode()[-MAX_BYTES:].decode(errors="ignore")
        cut = self._total - len(kept.encode())
        return f"[the first {cut} bytes of the output were cut]\n{kept}" if len(kept) < len(text) or cut > 0 else kept
