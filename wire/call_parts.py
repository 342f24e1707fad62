"""The description of a tool call for the person who decides about it: its parts, whole or in pages. Pure.

The whole may be megabytes. Every page says how much follows it, so that a beginning cannot pass for the whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

__all__ = ["PAGE_CHARS", "SHOWN_CHARS", "SHOWN_LINES", "CallPage", "CallPart", "bounded", "page_of"]

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
    for part in _after(parts, offset):
        if chars <= 0 or left == 0:
            break
        text = _beginning(part.text, chars, left)
        shown.append(msgspec.structs.replace(part, text=text))
        chars -= len(text)
        left = None if left is None else left - _lines_of(text)
        if len(text) < len(part.text):
            break
    page = CallPage(shown, offset)
    rest = list(_after(parts, page.end)) if page.end < _size(parts) else []
    return msgspec.structs.replace(page, hidden=_size(rest), hidden_lines=sum(_lines_of(part.text) for part in rest))


def bounded(page: CallPage, chars: int = 2 * SHOWN_CHARS) -> CallPage:
    """A worker's page, cut to our limits; what is cut off counts as hidden."""
    parts = [msgspec.structs.replace(part, name=part.name[:_MAX_NAME]) for part in page.parts[: 2 * SHOWN_LINES]]
    cut = page_of(parts, chars=chars)
    hidden = max(0, page.hidden) + cut.hidden + _size(page.parts) - _size(parts)
    lines = max(0, page.hidden_lines) + cut.hidden_lines
    return CallPage(cut.parts, page.offset, hidden, lines, None if hidden else page.seen)


def _after(parts: Iterable[CallPart], offset: int) -> Iterator[CallPart]:
    """The parts from ``offset`` on; empty parts at that place are included."""
    for part in parts:
        if offset < len(part.text) or (not part.text and not offset):
            yield msgspec.structs.replace(part, text=part.text[offset:], offset=part.offset + offset)
        offset = max(0, offset - len(part.text))


def _beginning(text: str, chars: int, lines: int | None) -> str:
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


def _lines_of(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _size(parts: Iterable[CallPart]) -> int:
    return sum(len(part.text) for part in parts)
