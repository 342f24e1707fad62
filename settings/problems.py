"""Problems of a settings file: lines of keys, types and bounds of values, suggestions."""

import difflib
import enum
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, Union, get_args, get_origin

import msgspec

from errors import SettingsRefused
from wire.units import decode_unit

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
    for first, last, statement in _split_statements(text):
        content = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _table_path(content, arrays)
            yield Statement(first, last, table, ())
        else:
            yield Statement(first, last, table, tuple(table + path for path in _paths(content)))


def _split_statements(text: str) -> Iterator[tuple[int, int, str]]:
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


class Problem(NamedTuple):
    """What is wrong with one key: ``("pool", "max")``; list items are numbers."""

    path: KeyPath
    text: str

    def __str__(self) -> str:
        name = ""
        for part in self.path:
            name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
        return f"{name}: {self.text}" if name else self.text


class SettingsError(SettingsRefused):
    """The settings cannot be used; ``problems`` has all that is wrong with them, the message shows it line by line."""

    def __init__(self, message: str, problems: list[Problem] | None = None) -> None:
        super().__init__(message)
        self.problems = problems or []


def type_problems(value: Any, kind: Any, path: KeyPath = ()) -> Iterator[Problem]:
    """Every unknown key and every value of the wrong type in a decoded TOML value, each under its own path."""
    inner = list(_inner_problems(value, kind, path))
    yield from inner
    if not inner:
        try:
            converted = msgspec.convert(value, kind, dec_hook=decode_unit)
        except msgspec.ValidationError as exc:
            whole = _problem(exc, path, value, kind)
            yield _blame_entry(value, kind, whole) or whole
        else:
            yield from (Problem(path, text) for text in _bound_problems(converted, kind))


def suggestion(key: str, known: Iterable[str]) -> str:
    """``; did you mean "max"?``, or else what there is."""
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; there are: {', '.join(sorted(known))}"


def _bound_problems(value: Any, kind: Any) -> Iterator[str]:
    """Check the bounds that msgspec does not know: those of times, sizes and finite numbers."""
    metas = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    for bound, limit in ((bound, limit) for meta in metas for bound, limit in (meta.extra or {}).items()):
        if bound == "least" and value < limit:
            yield f"must be {limit} or more, not {int(value)}"
        if bound == "above" and not (value > limit and math.isfinite(value)):
            yield f"must be more than {limit}, not {value:g}"


def _inner_problems(value: Any, kind: Any, path: KeyPath) -> Iterator[Problem]:
    kind = unwrap(kind)
    origin = get_origin(kind)
    if isinstance(value, dict) and is_struct(kind):
        types = _types(kind)
        for key, item in value.items():
            if key in types:
                yield from type_problems(item, types[key], (*path, key))
            else:
                yield Problem((*path, key), f"there is no such setting{suggestion(key, types)}")
    elif isinstance(value, dict) and origin is dict:
        for key, item in value.items():
            yield from type_problems(item, get_args(kind)[1], (*path, key))
    elif isinstance(value, list) and origin is list:
        for index, item in enumerate(value):
            yield from type_problems(item, get_args(kind)[0], (*path, index))


@cache
def _types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """What each key of a table holds; looked up once, since thousands of agents and jobs are tables of one kind."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def unwrap(kind: Any) -> Any:
    """The type without what surrounds it: ``Annotated[X, ...]`` and ``X | None`` are X."""
    if get_origin(kind) is Annotated:
        return unwrap(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        return unwrap(options[0]) if len(options) == 1 else kind
    return kind


def is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Whether values of the type are tables with keys of their own."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _blame_entry(value: Any, kind: Any, whole: Problem) -> Problem | None:
    """Blame one entry of a table for what a struct's own check says about the whole, where it alone says the same."""
    if _needs_something(kind):
        return None
    for place, part in _parts(value):
        try:
            msgspec.convert(part, kind, dec_hook=decode_unit)
        except msgspec.ValidationError as exc:
            alone = _problem(exc, whole.path + place, value, None)
            if alone.text == whole.text:
                return alone
    return None


def _needs_something(kind: Any) -> bool:
    """Whether a table of that type has keys that cannot be left out, so that one entry alone says nothing."""
    kind = unwrap(kind)
    return is_struct(kind) and any(field.required for field in msgspec.structs.fields(kind))


def _parts(value: Any) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """A table cut into tables of one entry each: one key, or one key of one inner table."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict):
            yield from (((key, inner), {key: {inner: part}}) for inner, part in item.items())
        else:
            yield (key,), {key: item}


def _problem(exc: msgspec.ValidationError, path: KeyPath, value: Any, kind: Any) -> Problem:
    text = re.sub(r" - at `[^`]*`$", "", str(exc)).replace("`", "")
    choices = _choices(kind)
    if bound := re.fullmatch(r"Expected int ([<>])= (-?\d+)", text):
        return Problem(path, f"must be {bound[2]} or {'more' if bound[1] == '>' else 'less'}, not {value}")
    hint = suggestion(value, choices) if choices and isinstance(value, str) else ""
    return Problem(path, f"{text[:1].lower()}{text[1:]}{hint}")


def _choices(kind: Any) -> list[str]:
    """The words that a value may be, where only certain ones may."""
    kind = unwrap(kind)
    if get_origin(kind) is Literal:
        return [choice for choice in get_args(kind) if isinstance(choice, str)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [member.value for member in kind]
    return []
