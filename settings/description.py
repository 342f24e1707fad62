"""What the structs of settings and messages say of themselves: their tables, fields, defaults and docstrings."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec

from settings.problems import is_struct, unwrap

SAMPLE_NAMES = {"agents": "main", "roles": "default"}
"""Entries that exist without being named, so that naming them changes nothing."""


def tables(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every table below one, with its struct."""
    for field in msgspec.structs.fields(kind):
        place = (*path, field.encode_name)
        inner = unwrap(field.type)
        if _is_table(field):
            yield place, inner
            yield from tables(inner, place)
        elif _has_sample(field):
            yield (*place, SAMPLE_NAMES[field.encode_name]), entry_of(inner, dict)


def own_fields(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """The fields that are keys of the table itself."""
    return [
        field
        for field in msgspec.structs.fields(kind)
        if not (_is_table(field) or _has_sample(field) or _is_per_entry(field))
    ]


def _is_table(field: msgspec.structs.FieldInfo) -> bool:
    """Whether the field has a table of its own; a struct that is unset by default has none."""
    return is_struct(unwrap(field.type)) and field.default is not None


def _has_sample(field: msgspec.structs.FieldInfo) -> bool:
    """Whether the field holds tables by name, one of which can be shown without changing anything."""
    return field.encode_name in SAMPLE_NAMES and entry_of(unwrap(field.type), dict) is not None


def _is_per_entry(field: msgspec.structs.FieldInfo) -> bool:
    """Whether the field stands inside each of the entries by name; the table for all of them says so."""
    return ".*." in field.encode_name


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The default; ``msgspec.NODEFAULT`` where a value is needed."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def entry_of(kind: Any, container: type) -> type[msgspec.Struct] | None:
    """The struct that a list or the values of a table hold; None where they hold something else."""
    entry = unwrap(get_args(kind)[-1]) if get_origin(kind) is container else None
    return entry if is_struct(entry) else None


def first_paragraph(kind: type) -> str:
    """What a class is, in the first paragraph of its docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]


def texts_of(kind: type) -> dict[str, str]:
    """The text below each field of a class, those of its bases included; Python itself does not keep them."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if owner.__module__.partition(".")[0] not in ("builtins", "enum", "msgspec"):
            found |= _texts_in(ast.parse(textwrap.dedent(inspect.getsource(owner))))
    return found


def _texts_in(tree: ast.Module) -> dict[str, str]:
    found = {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for pair in itertools.pairwise(body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=text)),
            ):
                found[name] = inspect.cleandoc(str(text))
    return found
