"""The page of the methods of the control socket and of ``/api``, from the table that serves them."""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

import msgspec

from doors.http.tokens import APPROVAL_METHODS, scope_of
from gateway.autonomy import Autonomy
from gateway.gateway import Gateway
from gateway.methods.operator import SupervisorPort
from gateway.methods.table import MethodTable
from manual.examples import Example
from manual.markdown import describe_structs, field_rows, prose, structs_in, table, type_text

_INTRODUCTION = """# Methods

The control socket, `POST /api/METHOD` and the command line call the same methods with the same parameters, as JSON.
[Control socket and HTTP](doors.md) says how. Unknown parameters are refused by name. Times are Unix times in seconds,
spans seconds. Every answer below was given by a real supervisor while this page was made; long ones are cut.
"""
_LONGEST = 1_500


class ClassView:
    """The methods of a class and of its parts, as functions without an object: what one reads of them, not calls."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(self._kind, name):
            return getattr(self._kind, name)
        return ClassView(_part(self._kind, name))


def methods_page(examples: Mapping[str, Example]) -> str:
    """The page."""
    entries = _table().entries
    if missing := sorted(set(entries) - set(examples)):
        raise LookupError(f"manual/examples.py calls no {', '.join(missing)}: every method has an example")
    lines = [_INTRODUCTION]
    results: list[type[msgspec.Struct]] = []
    for name, (kind, handle) in sorted(entries.items()):
        result = _result_of(handle)
        results += structs_in(result)
        lines += _describe(name, kind, handle, result, examples[name])
    parameters = [
        inner
        for kind, _ in entries.values()
        for field in msgspec.structs.fields(kind)
        for inner in structs_in(field.type)
    ]
    lines += [
        "## Objects",
        "",
        "What parameters and answers are made of.",
        "",
        *describe_structs([*parameters, *results]),
    ]
    return "\n".join(lines)


def _describe(
    name: str, kind: type[msgspec.Struct], handle: Callable[..., Any], result: Any, example: Example
) -> Iterator[str]:
    needs = "the right to approve" if name in APPROVAL_METHODS else f"scope `{scope_of(name).name.lower()}`"
    text = inspect.getdoc(handle)
    if not text:
        raise LookupError(f"nothing says what the method {name} does: its function needs a docstring")
    yield from (f"## {name}", "", prose(text), "")
    if kind.__doc__ and kind.__doc__.startswith(f"``{name}``"):
        more = prose(kind.__doc__.removeprefix(f"``{name}``").lstrip(":;, "))
        yield from (more[:1].upper() + more[1:], "")
    yield from (f"Over HTTP: {needs}.", "")
    yield from table(("parameter", "type", "default", ""), field_rows(kind))
    if result is not Any:
        yield from (f"Answers with {type_text(result)}.", "")
    yield from ("```json", json.dumps({"method": name, "params": example.params}), "```", "")
    yield from ("```json", _cut(json.dumps(example.result, indent=1)), "```", "")


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: text.rindex(chr(10), 0, _LONGEST)]}\n ..."


def _result_of(handle: Callable[..., Any]) -> Any:
    """What a handler returns; Any where it does not say."""
    function = inspect.unwrap(handle)
    return get_type_hints(getattr(function, "__func__", function)).get("return", Any)


def _table() -> MethodTable:
    """The table over classes instead of objects."""
    gateway: Any = ClassView(Gateway)
    autonomy: Any = ClassView(Autonomy)
    supervisor: Any = ClassView(SupervisorPort)
    return MethodTable(gateway, supervisor, autonomy)


def _part(kind: type, name: str) -> Any:
    """The class of ``self.NAME``, by what is assigned to it anywhere in the class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    space = vars(sys.modules[kind.__module__])
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target, value in _assigned(node):
                match target:
                    case ast.Attribute(value=ast.Name(id="self"), attr=attr) if attr == name:
                        return _class_of(value, kind, space)
                    case _:
                        continue
    raise AttributeError(f"{kind.__name__} has no part {name}")


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value, also of ``self.a, self.b = a, b``."""
    for target in node.targets:
        match target, node.value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                yield from zip(targets, values, strict=True)
            case _:
                yield target, node.value


def _class_of(value: ast.expr, kind: Any, space: Mapping[str, Any]) -> Any:
    match value:
        case ast.Await(value=inner):
            return _class_of(inner, kind, space)
        case ast.Call(func=ast.Name(id=name)):
            made = space[name]
            return made if isinstance(made, type) else get_type_hints(made)["return"]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=method)):
            return get_type_hints(getattr(kind, method))["return"]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
            return getattr(space[module], name)
        case ast.Name(id=name):
            return get_type_hints(kind.__init__)[name]
        case _:
            raise AttributeError(f"{kind.__name__}: {ast.unparse(value)} has no class that can be read")
