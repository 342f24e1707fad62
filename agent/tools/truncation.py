"""Bounds for what a tool tells the model: 50 kB and 2,000 lines, cut at line ends; the full text goes to a file."""

import uuid
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["MAX_BYTES", "MAX_LINES", "Excerpt", "excerpt", "shorten"]

MAX_BYTES = 50_000
MAX_LINES = 2_000
_KEPT_FILES = 100
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
    note = f"[cut: the {keep} is shown, {part.lines} of {of_lines} lines{_kept(text, outputs, lost=lost)}]"
    if keep == "end":
        return f"{note}\n{part.text}"
    return part.text + ("" if part.text.endswith("\n") else "\n") + note


def _kept(text: str, outputs: str, *, lost: bool) -> str:
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
    for old in sorted(directory.glob("output-*.txt"), key=_age)[:-_KEPT_FILES]:
        old.unlink(missing_ok=True)
    return str(path)


def _age(file: Path) -> int:
    """When it was written; a file that another call has removed since it was listed counts as the oldest."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
