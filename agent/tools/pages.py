"""Which lines of a text a page shows, within the bounds, and what it says of the rest; pure.

Lines end with LF and nothing else; a CR before it belongs to the line and is shown as it is.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import NamedTuple

from agent.tools.truncation import MAX_BYTES, MAX_LINES

__all__ = ["Page", "PageBuilder", "cut_text"]


class Page(NamedTuple):
    """``first`` and ``last`` are line numbers from 1; ``more``: the text goes on after ``last``."""

    text: str
    first: int
    last: int
    more: bool
    is_cut: bool
    """Only the beginning of the only line fits."""

    def note(self, total: int | None) -> str:
        """What to tell of the rest, on lines of its own; empty when all is shown. ``total``: lines, if known."""
        parts = []
        if self.is_cut:
            parts.append(
                f"[Line {self.first} is longer than {MAX_BYTES} bytes: this is its beginning. Use exec for the rest.]"
            )
        if self.more:
            of = f" of {total}" if total is not None else ""
            parts.append(f"[Showing lines {self.first}-{self.last}{of}. Use offset={self.last + 1} to go on.]")
        gap = "" if not self.text or self.text.endswith("\n") else "\n"
        return gap + "\n" + "\n".join(parts) if parts else ""


class PageBuilder:
    """Takes the lines from the first wanted one on, until it is full."""

    def __init__(self, first: int, limit: int) -> None:
        self._first = first
        self._room = min(limit, MAX_LINES)
        self._lines: list[bytes] = []
        self._size = 0
        self._is_cut = False

    def take(self, lines: Iterable[bytes]) -> bool:
        """Take lines (with their ends); False when there was one for which there is no room."""
        return all(self._take(line) for line in lines)

    def _take(self, line: bytes) -> bool:
        if len(self._lines) == self._room or self._is_cut:
            return False
        if self._size + len(line) > MAX_BYTES:
            if self._lines:
                return False
            self._is_cut = True
        self._lines.append(line[:MAX_BYTES])
        self._size += len(line)
        return True

    def page(self, *, more: bool) -> Page:
        """What there is to show."""
        data = b"".join(self._lines)
        text = cut_text(data) if self._is_cut else data.decode(errors="replace")
        return Page(text, self._first, self._first + len(self._lines) - 1, more, self._is_cut)


def cut_text(data: bytes) -> str:
    """The text of bytes that may end within a character, without the piece of it."""
    return getincrementaldecoder("utf-8")("replace").decode(data)
