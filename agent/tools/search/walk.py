"""The search child's walk of a tree in alphabetical order, following no link, and the format of matches."""

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from agent.tools.search.ignore import IgnoreStack, parse_rules

MAX_DEPTH = 100
MAX_RULES_BYTES = 256 * 1024
_SKIPPED_DIRECTORIES = frozenset({".git", ".hg", ".svn", ".jj"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class WalkEntry(NamedTuple):
    """Something in the tree: its path from the root, and how to open it."""

    path: str
    directory: int
    """An open directory, as long as the walk is not asked for what comes next."""
    name: str
    is_directory: bool
    is_file: bool


class Walk:
    """One walk, and how much it did not look into; ``outputs_suffix`` ends the names of conversations' outputs."""

    def __init__(self, outputs_suffix: str) -> None:
        self._outputs_suffix = outputs_suffix
        self.ignored = 0
        self.unreadable = 0
        self.too_deep = 0

    def entries(self, root: int, ignoring: IgnoreStack | None) -> Iterator[WalkEntry]:
        """All that is below ``root`` (a directory descriptor), except outputs of conversations and version control.

        ``ignoring`` None: ignore files are not asked.
        """
        return self._directory(root, "", ignoring, 0)

    def _directory(self, directory: int, path: str, ignoring: IgnoreStack | None, depth: int) -> Iterator[WalkEntry]:
        with os.scandir(directory) as entries:
            found = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                for entry in entries
            )
        if ignoring is not None and any(name == ".gitignore" for name, _, _ in found):
            rules = read_text_at(directory, ".gitignore")
            ignoring = ignoring if rules is None else ignoring.with_rules_of(path, parse_rules(rules))
        for name, is_directory, is_file in found:
            here = path + name
            if name in _SKIPPED_DIRECTORIES or name.endswith(self._outputs_suffix):
                continue
            if ignoring is not None and ignoring.ignores(here, is_directory=is_directory):
                self.ignored += 1
                continue
            yield WalkEntry(here, directory, name, is_directory, is_file)
            if is_directory:
                yield from self._subdirectory(directory, here, ignoring, depth + 1)

    def _subdirectory(self, parent: int, path: str, ignoring: IgnoreStack | None, depth: int) -> Iterator[WalkEntry]:
        if depth > MAX_DEPTH:
            self.too_deep += 1
            return
        try:
            directory = os.open(path.rpartition("/")[2], _DIRECTORY, dir_fd=parent)
        except OSError:
            self.unreadable += 1
            return
        try:
            yield from self._directory(directory, path + "/", ignoring, depth)
        finally:
            os.close(directory)


def read_text_at(directory: int, name: str) -> str | None:
    """The rules in a file of the directory; None where there is none that can be read."""
    try:
        descriptor = os.open(name, _REGULAR, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return file.read(MAX_RULES_BYTES).decode(errors="replace")
    except OSError:
        return None


LINE_CHARS = 500


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


def format_matches(name: str, lines: list[str], matches: list[Match], context: int) -> list[str]:
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
    begin = max(min(column - 100, len(line) - LINE_CHARS), 0)
    end = begin + LINE_CHARS
    return f"{'...' if begin else ''}{line[begin:end]}{'...' if end < len(line) else ''}"
