"""Validates a tool's input, with errors that the model can act on.

An error names every wrong field, shows its value and says what is expected. Numbers and booleans given as text
(``"5"``, ``"true"``) are converted.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from agent.tools.base import Tool, ToolError

_SHOWN_CHARS = 80


def decode_arguments(tool: Tool, given: Any) -> Any:
    """What the model gave, as the tool's ``input_type``; raises ToolError(validation)."""
    try:
        return msgspec.convert(given, tool.input_type, strict=False)
    except msgspec.ValidationError as exc:
        schema = tool.schema
        problems = list(_problems(tool.input_type, schema, given)) or [str(exc)]
        raise ToolError(
            f"the input does not fit the tool {tool.name}: {'; '.join(problems)}",
            "validation",
            recommendations=[f"{tool.name} takes {_signature(schema)}."],
        ) from exc


def _problems(kind: type[msgspec.Struct], schema: dict[str, Any], given: Any) -> Iterator[str]:
    if not isinstance(given, dict):
        yield f"it must be an object, and is {_value_excerpt(given)}"
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            yield f"{_value_excerpt(name)} is no field of it"
    for name, field in fields.items():
        if name not in given:
            if field.required:
                yield f"{name} is missing ({_expected(schema['properties'][name])})"
        else:
            yield from _problem(name, field.type, schema["properties"][name], given[name])


def _problem(name: str, kind: Any, schema: dict[str, Any], value: Any) -> Iterator[str]:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as exc:
        reason, at, path = str(exc).partition(" - at `$")
        if at:  # deeper inside: msgspec knows where, and what it expected there
            yield f"{name}{path.rstrip('`')}: {reason[:1].lower()}{reason[1:]}"
        else:
            yield f"{name} must be {_expected(schema)}, and is {_value_excerpt(value)}"


_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
}
_KINDS = {"string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def _expected(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_expected(choice) for choice in schema["anyOf"])
    kind = schema.get("type", "any value")
    words = [_KINDS.get(kind, f"an {kind}" if kind[:1] in "aeiou" else kind)]
    return ", ".join(words + [text.format(schema[name]) for name, text in _LIMITS.items() if name in schema])


def _signature(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    fields = (
        f"{name}{'' if name in required else '?'}: {_expected(value)}"
        for name, value in schema.get("properties", {}).items()
    )
    return "{" + "; ".join(fields) + "}"


def _value_excerpt(value: Any) -> str:
    """A value as the model wrote it, cut short; whatever it is, the answer can be encoded."""
    text = repr(value) if isinstance(value, float) else _json(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError):
        return f"a {type(value).__name__} that is no JSON"
