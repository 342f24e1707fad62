"""A unified diff of known changes: made of the lines around them alone, however long the text is; pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from agent.tools.edits import Change, apply_changes

__all__ = ["MAX_DIFF_LINES", "unified_diff"]

MAX_DIFF_LINES = 400
_CONTEXT = 3


class _Block(NamedTuple):
    """Old lines ``[first, last)``, counted from 0, become ``new``."""

    first: int
    last: int
    new: list[str]


def unified_diff(text: str, changes: Sequence[Change], *, most: int | None = MAX_DIFF_LINES) -> str:
    """Hunks with three lines of context, without file headers; what is behind the first ``most`` lines is counted."""
    old = text.split("\n")
    blocks = [block for block in (_trimmed(old, block) for block in _blocks(text, old, changes)) if block is not None]
    lines = [line for hunk in _hunks(old, blocks) for line in hunk]
    if most is not None and len(lines) > most:
        lines[most:] = [f"[{len(lines) - most} more lines]"]
    return "\n".join(lines)


def _blocks(text: str, lines: list[str], changes: Sequence[Change]) -> Iterator[_Block]:
    """The changes by whole lines; those that touch the same line are one block."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]
    groups: list[tuple[int, int, list[Change]]] = []
    for change in changes:
        first, last = (bisect_right(starts, position) - 1 for position in (change.start, change.end))
        if groups and first <= groups[-1][1]:
            groups[-1] = (groups[-1][0], max(last, groups[-1][1]), [*groups[-1][2], change])
        else:
            groups.append((first, last, [change]))
    for first, last, members in groups:
        begin = starts[first]
        end = starts[last + 1] - 1 if last + 1 < len(starts) else len(text)
        moved = [Change(change.start - begin, change.end - begin, change.new) for change in members]
        yield _Block(first, last + 1, apply_changes(text[begin:end], moved).split("\n"))


def _trimmed(old: list[str], block: _Block) -> _Block | None:
    """Without the equal lines at its edges; None when all are equal."""
    most = min(block.last - block.first, len(block.new))
    head = next((index for index in range(most) if old[block.first + index] != block.new[index]), most)
    tail = next(
        (index for index in range(most - head) if old[block.last - 1 - index] != block.new[-1 - index]), most - head
    )
    first, last, new = block.first + head, block.last - tail, block.new[head : len(block.new) - tail]
    return _Block(first, last, new) if new or first < last else None


def _hunks(old: list[str], blocks: Sequence[_Block]) -> Iterator[list[str]]:
    shift = 0
    pending: list[_Block] = []
    for block in blocks:
        if pending and block.first - pending[-1].last > 2 * _CONTEXT:
            yield _hunk(old, pending, shift)
            shift += _growth(pending)
            pending = []
        pending.append(block)
    if pending:
        yield _hunk(old, pending, shift)


def _growth(blocks: Sequence[_Block]) -> int:
    return sum(len(block.new) - (block.last - block.first) for block in blocks)


def _hunk(old: list[str], blocks: Sequence[_Block], shift: int) -> list[str]:
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
    header = f"@@ -{start + 1},{count} +{start + 1 + shift},{count + _growth(blocks)} @@"
    return [header, *(line.removesuffix("\r") for line in lines)]
