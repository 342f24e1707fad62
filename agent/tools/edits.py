"""Exact replacements in a text, all or none, and their unified diff. Pure.

Each edit is searched for in the original text, never in the result of another edit. Line ends do not count for the
search: the model writes LF, and the file keeps its own; outside the replaced pieces it stays the same byte for byte.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, NamedTuple

import msgspec

MAX_OCCURRENCES = 10_000
_SHOWN_OCCURRENCES = 10
_BOM = "\ufeff"


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement."""

    old_text: Annotated[str, msgspec.Meta(min_length=1, description="Exactly as in the file; must occur once")]
    new_text: Annotated[str, msgspec.Meta(description="What comes in its place")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every occurrence of old_text")] = False


class TextChange(NamedTuple):
    """``text[start:end]`` of the original becomes ``new``."""

    start: int
    end: int
    new: str


class EditError(Exception):
    """The edits cannot be made; the message names the edit, and where in the text the trouble is."""


def plan_changes(text: str, edits: Sequence[Edit]) -> list[TextChange]:
    """Where each edit applies, in the order of the text. Raises EditError for the first edit that does not."""
    source = _OriginalText(text)
    found: list[tuple[str, TextChange]] = []
    for index, edit in enumerate(edits):
        name = f"edits[{index}]"
        found.extend((name, change) for change in _changes(source, edit, name))
    found.sort(key=lambda item: item[1][:2])
    for (name, change), (next_name, following) in pairwise(found):
        if following.start < change.end:
            line = source.line_of(following.start)
            raise EditError(f"{name} and {next_name} overlap at line {line}; make one edit of them")
    return [change for _, change in found]


def apply_changes(text: str, changes: Sequence[TextChange]) -> str:
    """The text with changes that are in order and do not overlap."""
    parts = []
    position = 0
    for change in changes:
        parts += [text[position : change.start], change.new]
        position = change.end
    return "".join([*parts, text[position:]])


class _OriginalText:
    """The original, and how it reads with LF for every line end and without a byte order mark."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._skipped = 1 if text.startswith(_BOM) else 0
        self.plain = text[self._skipped :].replace("\r\n", "\n")
        self._returns = list(_crlf_positions(text[self._skipped :]))
        self._ends = self.plain.count("\n")

    def original_position(self, position: int) -> int:
        """Where a position of ``plain`` lies in ``text``."""
        return position + bisect_left(self._returns, position) + self._skipped

    def line_of(self, position: int) -> int:
        """The line of a position in ``text``, from 1."""
        return self.text.count("\n", 0, position) + 1

    def line_of_plain(self, position: int) -> int:
        """The same for ``plain``."""
        return self.plain.count("\n", 0, position) + 1

    def with_line_ends(self, new: str, replaced: str) -> str:
        """``new`` with the line ends of what it replaces, or where that has none or both, of most of the text."""
        returns, ends = replaced.count("\r\n"), replaced.count("\n")
        if not self._ends:
            return new
        use_crlf = returns > 0 if ends and returns in {0, ends} else 2 * len(self._returns) > self._ends
        plain = new.replace("\r\n", "\n")
        return plain.replace("\n", "\r\n") if use_crlf else plain


def _crlf_positions(text: str) -> Iterator[int]:
    """The positions of those LFs, in the text with LF alone, that had a CR before them."""
    position = text.find("\r\n")
    dropped = 0
    while position >= 0:
        yield position - dropped
        dropped += 1
        position = text.find("\r\n", position + 2)


def _changes(source: _OriginalText, edit: Edit, name: str) -> list[TextChange]:
    old = edit.old_text.removeprefix(_BOM).replace("\r\n", "\n")
    if not old:
        raise EditError(f"{name}.old_text holds no text")
    places = _occurrences(source.plain, old, len(old) if edit.replace_all else 1)
    if not places:
        raise EditError(f"{name}.old_text does not occur in the file{_near_miss(source, old)}")
    if len(places) > MAX_OCCURRENCES:
        raise EditError(f"{name}.old_text occurs more than {MAX_OCCURRENCES} times, too often for this tool")
    if len(places) > 1 and not edit.replace_all:
        raise EditError(
            f"{name}.old_text occurs {len(places)} times, at lines {_lines(source, places)}; "
            "add lines around it until it is unique, or set replace_all"
        )
    changes = []
    for place in places:
        start, end = source.original_position(place), source.original_position(place + len(old))
        changes.append(TextChange(start, end, source.with_line_ends(edit.new_text, source.text[start:end])))
    if all(source.text[change.start : change.end] == change.new for change in changes):
        raise EditError(f"{name} changes nothing: old_text and new_text are the same")
    return changes


def _occurrences(text: str, old: str, step: int) -> list[int]:
    """The first places, one more than may be replaced."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0 and len(places) <= MAX_OCCURRENCES:
        places.append(place)
        place = text.find(old, place + step)
    return places


def _lines(source: _OriginalText, places: Sequence[int]) -> str:
    shown = ", ".join(str(source.line_of_plain(place)) for place in places[:_SHOWN_OCCURRENCES])
    return shown + (", ..." if len(places) > _SHOWN_OCCURRENCES else "")


def _near_miss(source: _OriginalText, old: str) -> str:
    """A hint where the text would be found if white space at the edges of its lines did not count."""
    loose = "\n" + "\n".join(line.strip() for line in source.plain.split("\n")) + "\n"
    place = loose.find("\n" + "\n".join(line.strip() for line in old.strip().split("\n")) + "\n")
    if place < 0 or not old.strip():
        return ""
    return f"; text that differs from it in white space only is at line {loose.count(chr(10), 0, place) + 1}"


MAX_DIFF_LINES = 400
_CONTEXT = 3


class _LineBlock(NamedTuple):
    """Old lines ``[first, last)``, counted from 0, become ``new``."""

    first: int
    last: int
    new: list[str]


def unified_diff(text: str, changes: Sequence[TextChange], *, most: int | None = MAX_DIFF_LINES) -> str:
    """Hunks with three lines of context, without file headers; what is behind the first ``most`` lines is counted."""
    old = text.split("\n")
    blocks = [block for block in (_trimmed(old, block) for block in _blocks(text, old, changes)) if block is not None]
    lines = [line for hunk in _hunks(old, blocks) for line in hunk]
    if most is not None and len(lines) > most:
        lines[most:] = [f"[{len(lines) - most} more lines]"]
    return "\n".join(lines)


def _blocks(text: str, lines: list[str], changes: Sequence[TextChange]) -> Iterator[_LineBlock]:
    """The changes by whole lines; those that touch the same line are one block."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]
    groups: list[tuple[int, int, list[TextChange]]] = []
    for change in changes:
        first, last = (bisect_right(starts, position) - 1 for position in (change.start, change.end))
        if groups and first <= groups[-1][1]:
            groups[-1] = (groups[-1][0], max(last, groups[-1][1]), [*groups[-1][2], change])
        else:
            groups.append((first, last, [change]))
    for first, last, members in groups:
        begin = starts[first]
        end = starts[last + 1] - 1 if last + 1 < len(starts) else len(text)
        moved = [TextChange(change.start - begin, change.end - begin, change.new) for change in members]
        yield _LineBlock(first, last + 1, apply_changes(text[begin:end], moved).split("\n"))


def _trimmed(old: list[str], block: _LineBlock) -> _LineBlock | None:
    """Without the equal lines at its edges; None when all are equal."""
    most = min(block.last - block.first, len(block.new))
    head = next((index for index in range(most) if old[block.first + index] != block.new[index]), most)
    tail = next(
        (index for index in range(most - head) if old[block.last - 1 - index] != block.new[-1 - index]), most - head
    )
    first, last, new = block.first + head, block.last - tail, block.new[head : len(block.new) - tail]
    return _LineBlock(first, last, new) if new or first < last else None


def _hunks(old: list[str], blocks: Sequence[_LineBlock]) -> Iterator[list[str]]:
    shift = 0
    pending: list[_LineBlock] = []
    for block in blocks:
        if pending and block.first - pending[-1].last > 2 * _CONTEXT:
            yield _hunk(old, pending, shift)
            shift += _added_lines(pending)
            pending = []
        pending.append(block)
    if pending:
        yield _hunk(old, pending, shift)


def _added_lines(blocks: Sequence[_LineBlock]) -> int:
    return sum(len(block.new) - (block.last - block.first) for block in blocks)


def _hunk(old: list[str], blocks: Sequence[_LineBlock], shift: int) -> list[str]:
    start, end = max(blocks[0].first - _CONTEXT, 0), min(blocks[-1].last + _CONTEXT, len(old))
    if end == len(old) and old[-1] == "" and end > blocks[-1].last:
        end -= 1  # what follows the last line end is no line
    lines: list[str] = []
    position = start
    for block in blocks:
        lines += [f" {line}" for line in old[position : block.first]]
        lines += [f"-{line}" for line in old[block.first : block.last]]
        lines += [f"+{line}" for line in block.new]
        position = block.last
    lines += [f" {line}" for line in old[position:end]]
    count = end - start
    header = f"@@ -{start + 1},{count} +{start + 1 + shift},{count + _added_lines(blocks)} @@"
    return [header, *(line.removesuffix("\r") for line in lines)]
