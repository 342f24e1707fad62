"""The page of all settings, from the structs that load them."""

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from manual.markdown import default_text, field_rows, one_line, prose, table, type_text
from settings.description import entry_of, first_paragraph, own_fields, tables, texts_of
from settings.problems import is_struct, unwrap
from settings.schema import Settings

_INTRODUCTION = """# Settings

Every key of the settings file, with its default. `pool config init` writes the same into a commented file, `pool config
check` says what is wrong with one, `pool config set KEY VALUE` changes one key, and `pool reload` makes a running
supervisor read it again. Times are written "500ms", "30s", "5m", "2h" or "1d", sizes "64KiB", "10MB" or "1GiB".
"""
_HEADS = ("key", "type", "default", "")


def settings_page() -> str:
    """The page."""
    lines = [_INTRODUCTION, "## Top level", "", *_rows_of(Settings)]
    for path, kind in tables(Settings, ()):
        lines += [f"## [{'.'.join(path)}]", "", prose(first_paragraph(kind)), "", *_rows_of(kind)]
    return "\n".join(lines)


def _rows_of(kind: type[msgspec.Struct]) -> Iterator[str]:
    texts, fields = texts_of(kind), own_fields(kind)
    rows = [
        (f"`{each.encode_name}`", _type(each.type), default_text(each), one_line(_text(texts.get(each.name, ""), each)))
        for each in fields
    ]
    yield from table(_HEADS, rows)
    for field in fields:
        entry = _entry(field.type)
        if entry is not None:
            yield from (f"**An entry of `{field.encode_name}`.** {prose(first_paragraph(entry))}", "")
            yield from table(_HEADS, ((name, _type(kind), *rest) for name, kind, *rest in _entry_rows(entry)))


def _entry_rows(entry: type[msgspec.Struct]) -> Iterator[tuple[str, Any, str, str]]:
    kinds = [field.type for field in msgspec.structs.fields(entry)]
    for kind, (name, _type_text, default, text) in zip(kinds, field_rows(entry), strict=True):
        yield name, kind, default, text


def _type(kind: Any) -> str:
    """Entries have a table of their own below."""
    entry = _entry(kind)
    if entry is None:
        return "a table" if is_struct(unwrap(kind)) else type_text(kind)
    return "list of tables" if entry_of(unwrap(kind), list) else "tables by name"


def _entry(kind: Any) -> type[msgspec.Struct] | None:
    inner = unwrap(kind)
    return entry_of(inner, list) or entry_of(inner, dict)


def _text(text: str, field: msgspec.structs.FieldInfo) -> str:
    """With what each of the words means that may stand there."""
    kind = unwrap(field.type)
    if not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        return text
    meanings = texts_of(kind)
    members = [f"`{member.value}`: {meanings[member.name]}" for member in kind if member.name in meanings]
    return " ".join([text, *members])
