"""The lines of one file that match, as they are shown: cut around the match, with context; pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["LINE_CHARS", "Match", "matches_in", "shown_with_context"]

LINE_CHARS = 500
_BEFORE = 100


class Match(NamedTuple):
    """A line (counted from 1) and where in it the pattern first matches."""

    line: int
    column: int


def matches_in(lines: list[str], pattern: "re.Pattern[str]") -> Iterator[Match]:
    """The matching lines; a CR at the end is no part of a line."""
    for number, line in enumerate(lines, start=1):
        found = pattern.search(line.removesuffix("\r"))
        if found is not None:
            yield Match(number, found.start())


def shown_with_context(name: str, lines: list[str], matches: list[Match], context: int) -> list[str]:
    """``name:7: text`` for matches, ``name-8- text`` for what stands around them, ``--`` between pieces apart."""
    columns = {match.line: match.column for match in matches}
    shown: list[str] = []
    last = 0
    for match in matches:
        begin = max(match.line - context, last + 1)
        if context and last and begin > last + 1:
            shown.append("--")
        for number in range(begin, min(match.line + context, len(lines)) + 1):
            mark = ":" if number in columns else "-"
            shown.append(f"{name}{mark}{number}{mark} {_cut(lines[number - 1], columns.get(number, 0))}")
            last = number
    return shown


def _cut(line: str, column: int) -> str:
    line = line.removesuffix("\r")
    if len(line) <= LINE_CHARS:
        return line
    begin = max(min(column - _BEFORE, len(line) - LINE_CHARS), 0)
    end = begin + LINE_CHARS
    return f"{'...' if begin else ''}{line[begin:end]}{'...' if end < len(line) else ''}"
