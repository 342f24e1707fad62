"""A page of a tool call as lines of a terminal: line breaks are kept, and no character is invisible. Pure.

Every line of the call has a margin, so that no text in it can pass for a line of ours; the continuation of a wrapped
line has another one.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Literal, NamedTuple

from wire.call_parts import CallPage, CallPart
from wire.terminal import DIM, GREEN, RED, cells, clean

__all__ = ["STYLES", "PageLine", "Tone", "hidden_words", "marked", "page_lines"]

Tone = Literal["plain", "name", "added", "removed", "place"]

STYLES: Mapping[Tone, str] = {"plain": "", "name": DIM, "added": GREEN, "removed": RED, "place": DIM}

_BESIDE = 60
"""A text of one line, up to this many characters, is beside its name."""
_NAMES = 9
_MARGIN, _GOES_ON = "│ ", "┆ "
_LEAST = 16
_INDENT = 40
"""Up to this many spaces at the beginning of a line are indentation, and not marked."""
_DOTS = 8
_EMPTY_LINES = 3
_SPACES = re.compile(r"  +| $|^ +")
_BLANK = re.compile("[\u2800\u3164\uffa0\u115f\u1160]")
"""Characters that are printable by Unicode but blank."""


class PageLine(NamedTuple):
    """One line without control codes, at most as wide as was asked for."""

    text: str
    tone: Tone = "plain"


def page_lines(page: CallPage, columns: int) -> Iterator[PageLine]:
    """The parts of the page as lines of at most ``columns`` columns."""
    for part in page.parts:
        yield from _part_lines(part, max(columns, _LEAST))


def hidden_words(page: CallPage) -> str:
    """The size of what follows the page, in words; empty where nothing does."""
    if not page.hidden:
        return ""
    lines = f" in {page.hidden_lines:,} lines" if page.hidden_lines > 1 else ""
    return f"{page.hidden:,} more characters{lines} are hidden"


def marked(line: str) -> str:
    """One line with its runs of spaces, tabs, control and blank characters made visible."""
    text = _SPACES.sub(_marked_spaces, line).replace("\t", "⇥   ")
    return _BLANK.sub(lambda found: f"\\u{ord(found[0]):04x}", clean(text))


def _marked_spaces(found: re.Match[str]) -> str:
    length = len(found[0])
    at_start, at_end = found.start() == 0, found.end() == len(found.string)
    if at_start and not at_end and length <= _INDENT:
        return found[0]
    return "·" * length if length <= _DOTS else f"⟨{length:,} spaces⟩"


def _part_lines(part: CallPart, columns: int) -> Iterator[PageLine]:
    name = clean(part.name) + (" (goes on)" if part.offset else "")
    if "\n" not in part.text and part.form == "text":
        text = marked(part.text) or "(empty)"
        if len(part.text) <= _BESIDE and cells(text) + _NAMES + 1 <= columns and len(name) < _NAMES:
            yield PageLine(f"{name:{_NAMES}}{text}")
            return
    yield PageLine(f"{name}:", "name")
    is_diff = part.form == "diff"
    for line in _visible_lines(part.text, skip=1 if is_diff else 0):
        yield from _wrapped(line, _tone_of(line) if is_diff else "plain", columns)


def _visible_lines(text: str, *, skip: int) -> Iterator[str]:
    """The lines, marked; a run of empty lines, which could push the next out of sight, becomes its length.

    ``skip``: characters at the beginning of each line that are not marked.
    """
    for is_text, group in groupby(text.removesuffix("\n").split("\n"), lambda line: bool(line.strip())):
        lines = list(group)
        if is_text or len(lines) < _EMPTY_LINES:
            yield from (line[:skip] + marked(line[skip:]) for line in lines)
        else:
            yield f"⟨{len(lines):,} empty lines⟩"


def _tone_of(line: str) -> Tone:
    match line[:1]:
        case "+":
            return "added"
        case "-":
            return "removed"
        case "@":
            return "place"
        case _:
            return "plain"


def _wrapped(line: str, tone: Tone, columns: int) -> Iterator[PageLine]:
    margin, room = _MARGIN, columns - len(_MARGIN)
    while cells(line) > room:
        end = _fitting(line, room)
        yield PageLine(margin + line[:end], tone)
        margin, line = _GOES_ON, line[end:]
    yield PageLine(margin + line, tone)


def _fitting(text: str, columns: int) -> int:
    """How many characters fit into ``columns``; at least one."""
    if text.isascii():
        return columns
    end, width = 0, 0
    while end < len(text) and (width := width + cells(text[end])) <= columns:
        end += 1
    return max(end, 1)
