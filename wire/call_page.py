"""A tool call as the person who decides about it reads it: parts, pages, and lines of a terminal. Pure.

A call may take megabytes. Every page says how much follows it, so that a beginning cannot pass for the whole. On a
terminal every line of the call has a margin, and no character is invisible, so that no text in it can pass for a line
of ours; the continuation of a wrapped line has another margin.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from wire.terminal import DIM, GREEN, RED, clean, display_width, fitting_length

SHOWN_CHARS, SHOWN_LINES = 4_000, 40
"""Limits of the event ``permission_required``."""
PAGE_CHARS = 32_000
"""Limit of a page on request."""
_MAX_NAME = 100


class CallPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a call: a command, a directory, a diff. ``offset``: characters of it before ``text``.

    ``diff``: each line begins with ``+``, ``-``, a space or ``@``.
    """

    name: str
    text: str
    form: Literal["text", "diff"] = "text"
    offset: int = 0


class CallPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of a call. ``offset``: characters before it; ``hidden`` and ``hidden_lines``: after it.

    ``seen``: only on the last page of a call that is longer than its event shows; a decision to allow must repeat it.
    """

    parts: list[CallPart]
    offset: int = 0
    hidden: int = 0
    hidden_lines: int = 0
    seen: str | None = None

    @property
    def end(self) -> int:
        """Where the next page begins."""
        return self.offset + sum(len(part.text) for part in self.parts)


def page_of(
    parts: Sequence[CallPart], offset: int = 0, *, chars: int = PAGE_CHARS, lines: int | None = None
) -> CallPage:
    """The page that begins ``offset`` characters into the parts, of at most ``chars`` and ``lines``."""
    shown: list[CallPart] = []
    left = lines
    for part in _parts_from(parts, offset):
        if chars <= 0 or left == 0:
            break
        text = _prefix(part.text, chars, left)
        shown.append(msgspec.structs.replace(part, text=text))
        chars -= len(text)
        left = None if left is None else left - _count_lines(text)
        if len(text) < len(part.text):
            break
    page = CallPage(shown, offset)
    rest = list(_parts_from(parts, page.end)) if page.end < _count_chars(parts) else []
    return msgspec.structs.replace(
        page, hidden=_count_chars(rest), hidden_lines=sum(_count_lines(part.text) for part in rest)
    )


def bounded_page(page: CallPage, chars: int = 2 * SHOWN_CHARS) -> CallPage:
    """A worker's page, cut to our limits; what is cut off counts as hidden."""
    parts = [msgspec.structs.replace(part, name=part.name[:_MAX_NAME]) for part in page.parts[: 2 * SHOWN_LINES]]
    cut = page_of(parts, chars=chars)
    hidden = max(0, page.hidden) + cut.hidden + _count_chars(page.parts) - _count_chars(parts)
    lines = max(0, page.hidden_lines) + cut.hidden_lines
    return CallPage(cut.parts, page.offset, hidden, lines, None if hidden else page.seen)


def _parts_from(parts: Iterable[CallPart], offset: int) -> Iterator[CallPart]:
    """The parts from ``offset`` on; empty parts at that place are included."""
    for part in parts:
        if offset < len(part.text) or (not part.text and not offset):
            yield msgspec.structs.replace(part, text=part.text[offset:], offset=part.offset + offset)
        offset = max(0, offset - len(part.text))


def _prefix(text: str, chars: int, lines: int | None) -> str:
    """The beginning of the text, cut at a line break where that is possible. ``lines``: more than 0."""
    end = -1
    for _ in range(lines or 0):
        end = text.find("\n", end + 1)
        if end < 0:
            break
    most = chars if end < 0 else min(chars, end + 1)
    if most < len(text):
        most = text.rfind("\n", most // 2, most) + 1 or most
    return text[:most]


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _count_chars(parts: Iterable[CallPart]) -> int:
    return sum(len(part.text) for part in parts)


Tone = Literal["plain", "name", "added", "removed", "place"]

STYLES: Mapping[Tone, str] = {"plain": "", "name": DIM, "added": GREEN, "removed": RED, "place": DIM}

_MAX_INLINE_CHARS = 60
"""A text of one line, up to this many characters, is beside its name."""
_NAME_COLUMNS = 9
_MARGIN, _GOES_ON = "│ ", "┆ "
_MIN_COLUMNS = 16
_MAX_INDENT = 40
"""Up to this many spaces at the beginning of a line are indentation, and not marked."""
_MAX_DOTS = 8
_MIN_EMPTY_RUN = 3
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
        yield from _part_lines(part, max(columns, _MIN_COLUMNS))


def describe_hidden(page: CallPage) -> str:
    """The size of what follows the page, in words; empty where nothing does."""
    if not page.hidden:
        return ""
    lines = f" in {page.hidden_lines:,} lines" if page.hidden_lines > 1 else ""
    return f"{page.hidden:,} more characters{lines} are hidden"


def mark_invisible(line: str) -> str:
    """One line with its runs of spaces, tabs, control and blank characters made visible."""
    text = _SPACES.sub(_mark_spaces, line).replace("\t", "⇥   ")
    return _BLANK.sub(lambda found: f"\\u{ord(found[0]):04x}", clean(text))


def _mark_spaces(found: re.Match[str]) -> str:
    length = len(found[0])
    at_start, at_end = found.start() == 0, found.end() == len(found.string)
    if at_start and not at_end and length <= _MAX_INDENT:
        return found[0]
    return "·" * length if length <= _MAX_DOTS else f"⟨{length:,} spaces⟩"


def _part_lines(part: CallPart, columns: int) -> Iterator[PageLine]:
    name = clean(part.name) + (" (goes on)" if part.offset else "")
    if "\n" not in part.text and part.form == "text":
        text = mark_invisible(part.text) or "(empty)"
        if (
            len(part.text) <= _MAX_INLINE_CHARS
            and display_width(text) + _NAME_COLUMNS + 1 <= columns
            and len(name) < _NAME_COLUMNS
        ):
            yield PageLine(f"{name:{_NAME_COLUMNS}}{text}")
            return
    yield PageLine(f"{name}:", "name")
    is_diff = part.form == "diff"
    for line in _visible_lines(part.text, skip=1 if is_diff else 0):
        yield from _wrap_line(line, _tone_of(line) if is_diff else "plain", columns)


def _visible_lines(text: str, *, skip: int) -> Iterator[str]:
    """The lines, marked; a run of empty lines, which could push the next out of sight, becomes its length.

    ``skip``: characters at the beginning of each line that are not marked.
    """
    for is_text, group in groupby(text.removesuffix("\n").split("\n"), lambda line: bool(line.strip())):
        lines = list(group)
        if is_text or len(lines) < _MIN_EMPTY_RUN:
            yield from (line[:skip] + mark_invisible(line[skip:]) for line in lines)
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


def _wrap_line(line: str, tone: Tone, columns: int) -> Iterator[PageLine]:
    margin, room = _MARGIN, columns - len(_MARGIN)
    while display_width(line) > room:
        end = max(1, fitting_length(line, room))
        yield PageLine(margin + line[:end], tone)
        margin, line = _GOES_ON, line[end:]
    yield PageLine(margin + line, tone)
