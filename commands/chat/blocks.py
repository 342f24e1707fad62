"""Splits streamed Markdown into blocks that can be printed for good, since nothing behind them changes them. Pure."""

import re

MAX_BLOCK_CHARS = 16_384
MAX_FENCED_LINES = 200
"""A longer block is printed in parts: what is not printed yet is drawn again with each change."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])\s")
_CONTINUES_LIST = re.compile(r"\s*$|[ \t]{2,}|" + _ITEM.pattern)
"""A list goes on over blank lines for as long as what follows is indented, or another item."""


def cut_long_line(line: str) -> list[str]:
    """The parts of a line that has not ended; all but the last are long enough to be printed."""
    parts = []
    while len(line) > MAX_BLOCK_CHARS:
        cut = line.rfind(" ", 0, MAX_BLOCK_CHARS) + 1 or MAX_BLOCK_CHARS
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]


class MarkdownBlocks:
    """The text of one answer. ``rest`` is what has come and is not complete."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._size = 0
        self._fence = ""
        self._fence_line = ""
        self._is_repeated = False
        """The first line is that of a fence whose beginning is printed already."""

    @property
    def rest(self) -> str:
        """The block that has begun, as it is so far."""
        return "".join(self._lines) + self._partial

    def feed(self, text: str) -> list[str]:
        """The blocks that this piece completes."""
        *full, partial = (self._partial + text).split("\n")
        blocks = [block for line in full for block in self._add(f"{line}\n")]
        *long, self._partial = cut_long_line(partial)
        for line in long:
            blocks += [*self._add(line), *self._end()]
        return blocks

    def end(self) -> list[str]:
        """What is left, at the end of the answer or before something else is printed."""
        if self._partial:
            self._lines.append(self._partial)
            self._partial = ""
        self._fence = ""
        return self._end()

    def _add(self, line: str) -> list[str]:
        found = _FENCE.match(line)
        if self._fence:
            self._lines.append(line)
            self._size += len(line)
            if found and found[1].startswith(self._fence) and not found[2].strip():
                self._fence = ""
                return self._end()
            is_long = len(self._lines) > MAX_FENCED_LINES or self._size > MAX_BLOCK_CHARS
            return self._end() if is_long else []
        if found and not ("`" in found[2] and found[1][0] == "`"):
            before = self._end()
            self._fence, self._fence_line = found[1], line
            self._lines.append(line)
            return before
        is_list = bool(self._lines and _ITEM.match(self._lines[0]))
        if is_list and not _CONTINUES_LIST.match(line) and not self._lines[-1].strip():
            before = self._end()
        elif not line.strip() and not is_list:
            return self._end()
        else:
            before = []
        self._lines.append(line)
        self._size += len(line)
        return before + (self._end() if self._size > MAX_BLOCK_CHARS else [])

    def _end(self) -> list[str]:
        """The lines so far as a block; a fence that goes on begins again in the next one."""
        block = "".join(self._lines[1:] if self._is_repeated and len(self._lines) == 1 else self._lines)
        self._is_repeated = bool(self._fence)
        self._lines, self._size = ([self._fence_line] if self._fence else []), 0
        return [block] if block.strip() else []
