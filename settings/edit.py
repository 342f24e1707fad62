"""Setting one key of a TOML text, or removing a table: in place where comments can stay, else rewritten. Pure.

A candidate is accepted only if it parses to exactly the wanted table.
"""

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import tomli_w

from errors import UsageError
from settings.problems import Statement, statements
from settings.template import inline_key, inline_value


class EditResult(NamedTuple):
    """A text after one change."""

    text: str
    in_place: bool
    """False: the file was rewritten without its comments."""


def parse_key(key: str) -> tuple[str, ...]:
    """``pool.max`` or ``agents."my agent".model`` as a path. Raises UsageError for what is no TOML key."""
    try:
        table: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f'{key!r} is no key; write for example pool.max or agents."my.agent".model') from exc
    path: tuple[str, ...] = ()
    while isinstance(table, dict):
        if len(table) != 1:
            raise UsageError(f"{key!r} is more than one key")
        ((name, table),) = table.items()
        path = (*path, name)
    return path


def value_candidates(text: str) -> list[Any]:
    """What a value on the command line may mean, the likeliest first: as TOML where it is, else as a text."""
    table = _content_of(f"value = {text}") or {}
    return [text] if set(table) != {"value"} else [table["value"], text]


def edit_text(text: str, path: tuple[str, ...], value: Any) -> EditResult:
    """The text with the key set. Raises UsageError where the key lies inside something that is no table."""
    wanted = _with_value(tomllib.loads(text), path, value)
    for candidate in _candidates(text, path, wanted):
        if _content_of(candidate) == wanted:
            return EditResult(candidate, in_place=True)
    return EditResult(tomli_w.dumps(wanted), in_place=False)


def remove_text(text: str, path: tuple[str, ...]) -> EditResult:
    """The text without a table that is in it. Lines that hold nothing but a comment stay, its own too."""
    wanted = _without(tomllib.loads(text), path)
    lines = text.split("\n")
    for statement in reversed(list(statements(text))):
        if any(keys[: len(path)] == path for keys in (statement.table, *statement.keys)):
            del lines[statement.first - 1 : statement.last]
    candidate = "\n".join(lines)
    if _content_of(candidate) in (wanted, {name: value for name, value in wanted.items() if value or name != path[0]}):
        return EditResult(candidate, in_place=True)
    return EditResult(tomli_w.dumps(wanted), in_place=False)


def _without(table: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    name, *rest = path
    if rest:
        return {**table, name: _without(table[name], tuple(rest))}
    return {key: value for key, value in table.items() if key != name}


def _with_value(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    name, *rest = path
    if rest:
        inner = table.get(name, {})
        if not isinstance(inner, dict):
            raise UsageError(f"{name} is no table here; set the whole of it")
        value = _with_value(inner, tuple(rest), value)
    return {**table, name: value}


def _content_of(text: str) -> dict[str, Any] | None:
    """What the text says as TOML; None where it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


# --- candidates -------------------------------------------------------------------------------------------------------


def _candidates(text: str, path: tuple[str, ...], wanted: dict[str, Any]) -> Iterator[str]:
    """Texts in the order of how little they change: one value, one line more, one table more."""
    lines = text.split("\n")
    found = list(statements(text))
    ending = "\r\n" if "\r\n" in text else "\n"
    for changed in _replacements(lines, found, path, wanted):
        yield "\n".join(changed)
    for at, line in _insertions(lines, found, path, inline_value(_value_at(wanted, path))):
        yield "\n".join([*lines[:at], line + ending.removesuffix("\n"), *lines[at:]])
    if outer := path[:-1]:
        start = text + ending * (not text.endswith("\n")) + ending if text else ""
        setting = f"{inline_key(path[-1])} = {inline_value(_value_at(wanted, path))}"
        yield f"{start}[{_dotted(outer)}]{ending}{setting}{ending}"


def _replacements(
    lines: list[str], found: list[Statement], path: tuple[str, ...], wanted: dict[str, Any]
) -> Iterator[list[str]]:
    """The statement that sets the key, or a one-line table around it, with its new value."""
    for length in range(len(path), 0, -1):
        for statement in found:
            if path[:length] in statement.keys:
                yield _replaced(lines, statement, inline_value(_value_at(wanted, path[:length])))


def _insertions(
    lines: list[str], found: list[Statement], path: tuple[str, ...], source: str
) -> Iterator[tuple[int, str]]:
    """Where a line for the key could be put in, and what it says there."""
    *outer, name = path
    for section in _sections(found, tuple(outer), len(lines)):
        yield _insertion_line(lines, section, name), f"{inline_key(name)} = {source}"
    for statement in found:  # the table has no header: it is made by dotted keys
        depth = len(statement.table)
        if tuple(outer) in statement.keys:
            yield statement.last, f"{_dotted(path[depth:])} = {source}"


def _value_at(table: Any, path: tuple[str, ...]) -> Any:
    return _value_at(table[path[0]], path[1:]) if path else table


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(inline_key(name) for name in path)


def _replaced(lines: list[str], statement: Statement, source: str) -> list[str]:
    """The statement with another value; what stands before the value and behind it stays."""
    old = "\n".join(lines[statement.first - 1 : statement.last])
    new = f"{_left_side(old)}= {source}{_trailing_comment(old)}"
    return [*lines[: statement.first - 1], new, *lines[statement.last :]]


def _left_side(statement: str) -> str:
    """Everything up to the equals sign, which may also be a character of the key."""
    ends = (found.start() for found in re.finditer("=", statement))
    return next(statement[:end] for end in ends if _content_of(f"{statement[:end]}= 0"))


def _trailing_comment(statement: str) -> str:
    """The comment behind the value with the blanks before it, and the line's own ending."""
    ending = "\r" if statement.endswith("\r") else ""
    statement = statement.removesuffix("\r")
    content = tomllib.loads(statement)
    for found in re.finditer("#", statement):
        before = statement[: found.start()]
        if _content_of(before) == content:
            return statement[len(before.rstrip()) :] + ending
    return ending


class _Section(NamedTuple):
    """The lines of one table, as indices; ``stop`` not included."""

    start: int
    stop: int
    after_last: int
    """Behind its last statement."""


def _sections(found: list[Statement], table: tuple[str, ...], count: int) -> Iterator[_Section]:
    """Where the table's own keys stand: behind its header, for the outermost table before the first header."""
    headers = [(statement.last, statement.first - 1, statement.table) for statement in found if statement.is_header]
    for (start, _, owner), (_, stop, _) in pairwise([(0, 0, ()), *headers, (count, count, ())]):
        if owner == table:
            inside = [statement.last for statement in found if start < statement.first <= stop]
            yield _Section(start, stop, max(inside, default=start))


def _insertion_line(lines: list[str], section: _Section, name: str) -> int:
    """Behind the line that shows the key's default, where there is one; else behind the table's last key."""
    shown = re.compile(rf"\s*#\s?{re.escape(inline_key(name))}\s*=")
    for index in range(section.start, section.stop):
        if shown.match(lines[index]):
            return index + 1
    return section.after_last
