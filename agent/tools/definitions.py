"""The JSON schema of a tool's input, as a model sees it."""

from functools import lru_cache
from typing import Any

import msgspec

__all__ = ["input_schema"]


@lru_cache(maxsize=256)
def input_schema(input_type: type[msgspec.Struct]) -> dict[str, Any]:
    """In one piece, without references: not every server follows them at the top.

    Input types are trees; one that holds itself would not come to an end here. Asked for at each model call, made once
    for each type: nobody may change it.
    """
    (schema,), components = msgspec.json.schema_components([input_type])
    inlined: dict[str, Any] = _inlined(schema, components)
    inlined.pop("title", None)
    inlined.pop("description", None)  # it is the class's docstring; the tool's own description is for the model
    return inlined


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = components[schema["$ref"].rpartition("/")[2]]
        return _inlined(target | {name: value for name, value in schema.items() if name != "$ref"}, components)
    return {name: _inlined(value, components) for name, value in schema.items()}
