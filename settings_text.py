"""Where the keys of a settings file stand: the parser keeps no positions, so each statement is found and read alone."""

import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["KeyPath", "Statement", "lines_of_keys", "statements"]

KeyPath = tuple[str | int, ...]
"""``("pool", "max")``; items of lists are numbers."""


class Statement(NamedTuple):
    """One statement of a TOML text, ``key = value`` or the header of a table; lines count from 1, ``last`` included."""

    first: int
    last: int
    table: KeyPath
    """The table it stands in; of a header the table that it opens."""
    keys: tuple[KeyPath, ...]
    """Full paths of everything it sets, the outermost first; empty for a header."""

    @property
    def is_header(self) -> bool:
        """Whether it opens a table."""
        return not self.keys


def lines_of_keys(text: str) -> dict[KeyPath, int]:
    """The line of every key of a TOML text that parses; keys inside one statement share its first line."""
    found: dict[KeyPath, int] = {}
    for statement in statements(text):
        if statement.is_header:
            found.setdefault(statement.table, statement.first)
        else:
            found.update(dict.fromkeys(statement.keys, statement.first))
    return found


def statements(text: str) -> Iterator[Statement]:
    """The statements of a TOML text that parses, in order."""
    table: KeyPath = ()
    arrays: dict[KeyPath, int] = {}
    for first, last, statement in _cut(text):
        content = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _table_path(content, arrays)
            yield Statement(first, last, table, ())
        else:
            yield Statement(first, last, table, tuple(table + path for path in _paths(content)))


def _cut(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and text of the shortest runs of lines that parse by themselves and say something."""
    start, pending = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        pending += f"{line}\n"
        try:
            content = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        if content:
            yield start, number, pending
        start, pending = number + 1, ""


def _table_path(header: Any, arrays: dict[KeyPath, int]) -> KeyPath:
    """The path a header line opens: ``[[a.b]]`` for the second time is ``("a", "b", 1)``."""
    path: KeyPath = ()
    while header:
        if isinstance(header, list):
            arrays[path] = arrays.get(path, -1) + 1
            return (*path, arrays[path])
        (key, header), *_ = header.items()
        path = (*path, key)
        if path in arrays and isinstance(header, dict):
            path = (*path, arrays[path])
    return path


def _paths(content: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from _paths(value, (*path, key))
