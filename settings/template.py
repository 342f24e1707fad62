"""The commented default settings file, generated from the structs and their docstrings.

A line of ``#`` and a key shows a default, set by uncommenting it; ``# `` starts prose.
"""

import enum
import re
import textwrap
from collections.abc import Iterator
from datetime import date, datetime
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import tomli_w

from settings.description import default_of, entry_of, first_paragraph, own_fields, tables, texts_of
from settings.problems import is_struct, unwrap
from wire.units import ByteCount, Seconds

_WIDTH = 100
_TIMES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"), (0.001, "ms"))
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render_template(root: type[msgspec.Struct]) -> str:
    """The whole file for the settings that ``root`` describes: loaded as it is, or uncommented, it is the defaults."""
    lines = [*_prose("Settings of pool. A line such as #key = value shows a default: remove the # to change it.")]
    lines += _prose('Times are written "500ms", "30s", "5m", "2h" or "1d", sizes "64KiB", "10MB" or "1GiB".')
    lines += _keys(root, ())
    for path, kind in tables(root, ()):
        lines += ["", "", *_prose(first_paragraph(kind)), f"[{'.'.join(path)}]", *_keys(kind, path)]
    return "\n".join(lines) + "\n"


def humanize(value: Any) -> Any:
    """A value as people write it: times and sizes with the largest unit that fits; None entries of tables left out."""
    if isinstance(value, msgspec.Struct):
        names = {field.name: field.encode_name for field in msgspec.structs.fields(value)}
        return humanize({names[name]: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, dict):
        return {str(key): humanize(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | frozenset | set):
        return [humanize(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Seconds):
        return _with_unit(value, _TIMES)
    return _with_unit(value, _SIZES) if isinstance(value, ByteCount) else value


def _with_unit(value: Seconds | ByteCount, units: tuple[tuple[float, str], ...]) -> str | int | float:
    """The shortest spelling that means exactly this value; the bare number where none does."""
    for factor, unit in units:
        text = f"{round(value / factor)}{unit}"
        if value and type(value).parse(text) == value:
            return text
    return int(value) if value == int(value) else float(value)


def inline_value(value: Any) -> str:
    """A TOML value in one line."""
    if isinstance(value, dict):
        entries = ", ".join(f"{inline_key(key)} = {inline_value(item)}" for key, item in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(inline_value(item) for item in value)}]"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").rstrip("\n")


def inline_key(key: str) -> str:
    """A key, quoted where it must be."""
    return key if _BARE_KEY.fullmatch(key) else inline_value(key)


# --- tables and keys --------------------------------------------------------------------------------------------------


def _keys(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of the keys that stand in the table itself."""
    texts = texts_of(kind)
    for field in own_fields(kind):
        inner = unwrap(field.type)
        yield ""
        yield from _prose(texts.get(field.name, ""))
        yield from _choices(inner)
        yield from _entry_example(".".join((*path, field.encode_name)), inner)
        yield f"{'# ' if default_of(field) is None else '#'}{_line(field)}"


def _line(field: msgspec.structs.FieldInfo) -> str:
    """A key with its default, or with an example where it has none."""
    default = default_of(field)
    if default is None or default is msgspec.NODEFAULT:
        why = "needed" if default is msgspec.NODEFAULT else "unset by default"
        return f"{field.encode_name} = {inline_value(_example(field.type))} ({why})"
    return f"{field.encode_name} = {inline_value(humanize(default))}"


def _choices(kind: Any) -> Iterator[str]:
    if get_origin(kind) is Literal:
        yield from _prose(f"One of: {', '.join(get_args(kind))}.")
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        texts = texts_of(kind)
        yield "# One of:"
        for member in kind:
            yield from _prose(f"{member.value}: {texts.get(member.name, '')}".removesuffix(": "), indent="  ")


def _entry_example(name: str, kind: Any) -> Iterator[str]:
    """What one entry of a list or a table of structs may say."""
    entry = entry_of(kind, list) or entry_of(kind, dict)
    if entry is None:
        return
    header = f"[[{name}]]" if entry_of(kind, list) else f"[{name}.NAME]"
    yield from _prose(f"An entry, {header}: {first_paragraph(entry)}")
    texts = texts_of(entry)
    for field in msgspec.structs.fields(entry):
        yield from _prose(f"{_line(field)} # {texts.get(field.name, '')}".removesuffix(" # "), indent="  ")


def _example(kind: Any) -> Any:
    """A value of that type, for keys that have no default."""
    least = _minimum(kind)
    if least is not None:
        return least
    kind = unwrap(kind)
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if is_struct(kind):
        return {field.encode_name: _example(field.type) for field in msgspec.structs.fields(kind)}
    if get_origin(kind) in (list, dict):
        return [] if get_origin(kind) is list else {}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    return {
        datetime: date(2031, 5, 1),
        Seconds: "10m",
        ByteCount: "64MiB",
        bool: True,
        int: 1,
        float: 1.0,
    }.get(kind, "...")


# --- types ------------------------------------------------------------------------------------------------------------


def _minimum(kind: Any) -> Any:
    """The smallest number that a type with a bound takes; None where there is no such bound."""
    options = get_args(kind)
    if get_origin(kind) is Annotated:
        bounds = (each.ge for each in options[1:] if isinstance(each, msgspec.Meta))
        return next((bound for bound in bounds if bound is not None), None)
    found = map(_minimum, options) if get_origin(kind) in (Union, UnionType) else ()
    return next((bound for bound in found if bound is not None), None)


# --- texts ------------------------------------------------------------------------------------------------------------


def _prose(text: str, indent: str = "") -> list[str]:
    """Comment lines; an empty text has none."""
    paragraphs = re.sub(r"``([^`]*)``", r"\1", text).split("\n\n")
    hanging = f"{indent}  " if indent else ""
    return [
        f"# {line}"
        for each in paragraphs
        for line in textwrap.wrap(" ".join(each.split()), _WIDTH, initial_indent=indent, subsequent_indent=hanging)
    ]
