"""The latest lines of the supervisor's log, kept in memory for ``logs.tail``: bounded, read from any position on."""

import re
import threading
from collections import deque

from gateway.methods.ports import LogPage

__all__ = ["KEPT_BYTES", "LogTail"]

KEPT_BYTES = 1024 * 1024
_LONGEST_LINE = 16 * 1024
"""Bytes; the rest of a longer line is left out here, not in the log itself."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class LogTail:
    """Filled from any thread. A position is how many bytes were logged before it in this supervisor's life."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._lines: deque[tuple[str, int]] = deque()
        """Each with its size in bytes, the line break included."""
        self._begin = self._end = 0
        """The positions of the first line that is kept, and after the last one."""
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Keep what was logged; one event may have several lines."""
        with self._lock:
            for line in _STYLE.sub("", text).split("\n"):
                kept = line.encode(errors="replace")[:_LONGEST_LINE].decode(errors="ignore")
                size = len(kept.encode()) + 1
                self._lines.append((kept, size))
                self._end += size
            while self._end - self._begin > self._kept_bytes:
                self._begin += self._lines.popleft()[1]

    def read(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """The lines after the position ``cursor``, of these the latest; without one the latest of all."""
        with self._lock:
            lines, begin, end = list(self._lines), self._begin, self._end
        is_reset = cursor is not None and cursor > end
        since = begin if cursor is None or is_reset else cursor
        taken: list[str] = []
        position = end
        while lines and len(taken) < limit:
            line, size = lines.pop()
            if position - size < since or end - (position - size) > max_bytes:
                break
            taken.append(line)
            position -= size
        return LogPage(
            cursor=end,
            size=end,
            lines=taken[::-1],
            truncated=position > since or (cursor is not None and cursor < begin),
            reset=is_reset,
        )
