"""Bounds for tool output: 50 kB and 2,000 lines, cut at line ends; the full text goes to a file.

Lines end with LF and nothing else; a CR before it belongs to the line and is shown as it is.
"""

import uuid
from codecs import getincrementaldecoder
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

MAX_BYTES = 50_000
MAX_LINES = 2_000
_MAX_FILES = 100
"""Full texts that are kept of one conversation; the oldest go first."""

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
    end of something longer.
    """
    part = excerpt(text, keep)
    if part.is_whole:
        return f"[the beginning is no longer kept]\n{text}" if lost else text
    of_lines = f"the last {part.of_lines}" if lost else f"{part.of_lines}"
    note = f"[cut: the {keep} is shown, {part.lines} of {of_lines} lines{_cut_note(text, outputs, lost=lost)}]"
    if keep == "end":
        return f"{note}\n{part.text}"
    return part.text + ("" if part.text.endswith("\n") else "\n") + note


def _cut_note(text: str, outputs: str, *, lost: bool) -> str:
    if not outputs:
        return ""
    what = f"the last {len(text):,} characters are" if lost else "the full text is"
    try:
        return f"; {what} in {_save(text, outputs)}"
    except OSError as exc:  # a full disk shall not cost the part that can be shown
        return f"; the rest could not be kept: {exc.strerror}"


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
    for old in sorted(directory.glob("output-*.txt"), key=_modified_at)[:-_MAX_FILES]:
        old.unlink(missing_ok=True)
    return str(path)


def _modified_at(file: Path) -> int:
    """When it was written; a file that another call has removed since it was listed counts as the oldest."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


class TextPage(NamedTuple):
    """``first`` and ``last`` are line numbers from 1; ``more``: the text goes on after ``last``."""

    text: str
    first: int
    last: int
    more: bool
    is_cut: bool
    """Only the beginning of the only line fits."""

    def footer(self, total: int | None) -> str:
        """Lines about the rest; empty when all is shown. ``total``: lines, if known."""
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

    def feed(self, lines: Iterable[bytes]) -> bool:
        """Take lines (with their ends); False when there was one for which there is no room."""
        return all(self._add(line) for line in lines)

    def _add(self, line: bytes) -> bool:
        if len(self._lines) == self._room or self._is_cut:
            return False
        if self._size + len(line) > MAX_BYTES:
            if self._lines:
                return False
            self._is_cut = True
        self._lines.append(line[:MAX_BYTES])
        self._size += len(line)
        return True

    def page(self, *, more: bool) -> TextPage:
        """What there is to show."""
        data = b"".join(self._lines)
        text = cut_text(data) if self._is_cut else data.decode(errors="replace")
        return TextPage(text, self._first, self._first + len(self._lines) - 1, more, self._is_cut)


def cut_text(data: bytes) -> str:
    """The text of bytes that may end within a character, without the piece of it."""
    return getincrementaldecoder("utf-8")("replace").decode(data)
