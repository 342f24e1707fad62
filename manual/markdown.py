"""Markdown from what the code says: tables, headings, docstrings, and types as a reader knows them."""

import enum
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from settings.description import default_of, texts_of
from settings.problems import is_struct, unwrap
from settings.template import humanize
from wire.units import ByteCount, Seconds

_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", Seconds: "time", ByteCount: "size"}


def prose(text: str) -> str:
    """A docstring as Markdown: literals in single backquotes, angle brackets as they are."""
    return re.sub(r"``([^`]*)``", r"`\1`", inspect.cleandoc(text))


def one_line(text: str) -> str:
    """The same for a cell of a table."""
    return " ".join(prose(text).split()).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with an empty one behind; nothing where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield from (f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines, "")


def type_text(kind: Any) -> str:  # noqa: PLR0911 - one line for each sort of type
    """A type in a reader's words, with its bounds."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        unit = " characters" if arguments[0] is str else " entries"
        bounds = "".join(_bounds(meta, unit) for meta in arguments[1:] if isinstance(meta, msgspec.Meta))
        return f"{type_text(arguments[0])}{bounds}"
    if origin in (Union, UnionType):
        parts = [type_text(part) for part in arguments if part not in (NoneType, msgspec.UnsetType)]
        return " or ".join([*parts, *(["null"] if NoneType in arguments else [])])
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in arguments)
    if origin in (list, tuple, frozenset, set):
        return f"list of {type_text(arguments[0])}"
    if origin is dict or kind is dict:
        return f"table of {type_text(arguments[1])}" if arguments else "object"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " \\| ".join(f"`{member.value}`" for member in kind)
    if is_struct(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return _NAMES.get(kind, "any JSON" if kind in (Any, msgspec.Raw) else getattr(kind, "__name__", str(kind)))


def _bounds(meta: msgspec.Meta, unit: str) -> str:
    extra = meta.extra or {}
    least = meta.ge if meta.ge is not None else meta.min_length or extra.get("least")
    most = meta.le if meta.le is not None else meta.max_length
    of_length = unit if meta.max_length is not None or meta.min_length is not None else ""
    above = meta.gt if meta.gt is not None else extra.get("above")
    parts = [
        f"above {above}" if above is not None else "",
        f"{least:,} to {most:,}{of_length}" if least is not None and most is not None else "",
        f"at least {least:,}{of_length}" if least is not None and most is None else "",
        f"at most {most:,}{of_length}" if least is None and most is not None else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Every struct that a type mentions, not those inside them."""
    if is_struct(unwrap(kind)):
        yield unwrap(kind)
    else:
        for part in get_args(kind):
            yield from structs_in(part)


def default_text(field: msgspec.structs.FieldInfo) -> str:
    """The default of a field; "needed" where it has none."""
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        return "needed"
    if default in (None, msgspec.UNSET):
        return ""
    encoded = msgspec.json.encode(humanize(default)).decode()
    return f"`{encoded}`" if len(encoded) <= 60 else "..."


def field_rows(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and text of each field."""
    texts = texts_of(kind)
    for field in msgspec.structs.fields(kind):
        text = one_line(texts.get(field.name, ""))
        yield f"`{field.encode_name}`", type_text(field.type), default_text(field), text


def describe_structs(kinds: Iterable[type[msgspec.Struct]], level: str = "###") -> Iterator[str]:
    """A section for each struct and for all that they mention, each once."""
    seen: dict[type[msgspec.Struct], None] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop(0)
        if kind not in seen:
            seen[kind] = None
            waiting += [inner for field in msgspec.structs.fields(kind) for inner in structs_in(field.type)]
    for kind in sorted(seen, key=lambda each: each.__name__):
        yield from (f"{level} {kind.__name__}", "", prose(kind.__doc__ or ""), "")
        yield from table(("field", "type", "default", ""), field_rows(kind))
