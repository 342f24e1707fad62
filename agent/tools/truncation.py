"""Bounds for what a tool tells the model: 50 kB and 2,000 lines, cut at line ends where possible."""

from codecs import getincrementaldecoder
from collections import deque

__all__ = ["MAX_BYTES", "MAX_LINES", "TAIL_CHARS", "TailBuffer"]

MAX_BYTES = 50_000
MAX_LINES = 2_000
TAIL_CHARS = 2_000


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
