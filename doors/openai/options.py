"""Reads ``tools``, ``tool_choice``, formats and ``stop`` of OpenAI's two interfaces. Pure.

Completions nest the name: ``{"type": "function", "function": {"name", ...}}``; responses have it beside the type. The
same holds for choices and formats.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS
from wire.messages import JsonAnswer

_MOST_STOPS = 4
_MOST_STOP_CHARS = 200
_MOST_SCHEMA_BYTES = 256 * 1024
_MOST_LEVELS = 100
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHOICES = "auto, none, required, a function or allowed_tools"


class FunctionTool(msgspec.Struct, frozen=True):
    """A function of the client; ``parameters`` is a JSON schema."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def as_client_tool(self) -> dict[str, Any]:
        """As the method ``prompt`` takes it."""
        schema = self.parameters or {"type": "object", "properties": {}}
        return {"name": self.name, "description": self.description or "", "parameters": schema}


class ToolSelection(NamedTuple):
    """The tools offered to the model, and the names of those of which it must call one (empty: none)."""

    tools: Sequence[FunctionTool]
    must_call: list[str]


class _ToolReference(msgspec.Struct, frozen=True):
    name: str | None = None
    function: "_ToolReference | None" = None
    type: str = "function"

    @property
    def tool(self) -> str | None:
        return self.function.name if self.function is not None else self.name


class _AllowedTools(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: list[_ToolReference]


class _ToolChoice(_ToolReference, frozen=True):
    mode: Literal["auto", "required"] | None = None
    tools: list[_ToolReference] = []
    allowed_tools: _AllowedTools | None = None


def apply_tool_choice(tools: Sequence[FunctionTool], choice: Any) -> ToolSelection:
    """Apply ``tool_choice`` to the tools. Raises UsageError."""
    match choice:
        case None | "auto":
            return ToolSelection(tools, [])
        case "none":
            return ToolSelection([], [])
        case "required" if tools:
            return ToolSelection(tools, [tool.name for tool in tools])
        case "required":
            raise _tool_choice_error("a call is required, and there are no tools")
    try:
        wanted = msgspec.convert(choice, _ToolChoice)
    except msgspec.ValidationError as exc:
        raise _tool_choice_error(f"{_CHOICES} ({exc})") from exc
    match wanted.type:
        case "function":
            return ToolSelection(tools, [_known_tool(wanted.tool, tools)])
        case "allowed_tools":
            allowed = wanted.allowed_tools or _AllowedTools(wanted.mode or "auto", wanted.tools)
            names = [_known_tool(one.tool, tools) for one in allowed.tools]
            return ToolSelection(
                [tool for tool in tools if tool.name in names], names if allowed.mode == "required" else []
            )
    raise _tool_choice_error(_CHOICES)


def _known_tool(name: str | None, tools: Sequence[FunctionTool]) -> str:
    if not any(tool.name == name for tool in tools):
        raise _tool_choice_error(f"there is no tool of that name among tools: {(name or '')[:100]!r}")
    return name or ""


def _tool_choice_error(problem: str) -> UsageError:
    return UsageError(f"tool_choice: {problem}", param="tool_choice")


# --- formats ----------------------------------------------------------------------------------------------------------


class _Schema(msgspec.Struct, frozen=True):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class _Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


def parse_response_format(given: Any, param: str) -> JsonAnswer | None:
    """The form of the answer; None: text. Raises UsageError."""
    if given is None:
        return None
    try:
        form = msgspec.convert(given, _Format)
        if form.type != "json_schema":
            return JsonAnswer() if form.type == "json_object" else None
        wanted = form.json_schema or msgspec.convert(given, _Schema)
    except DECODE_ERRORS as exc:
        raise UsageError(f"{param}: {exc}", param=param) from exc
    if not _NAME.fullmatch(wanted.name):
        text = "a schema's name has 1 to 64 letters, digits, underscores and hyphens"
        raise UsageError(f"{param}: {text}", param=param)
    _check_size(wanted.schema or {}, param)
    return JsonAnswer(wanted.name, wanted.schema or {}, wanted.description, wanted.strict)


def _check_size(schema: dict[str, Any], param: str) -> None:
    level: list[Any] = [schema]
    for _ in range(_MOST_LEVELS):
        level = [part for value in level for part in _children(value)]
        if not level:
            break
    else:
        raise UsageError(f"{param}: the schema is nested more than {_MOST_LEVELS} levels deep", param=param)
    size = len(msgspec.json.encode(schema))
    if size > _MOST_SCHEMA_BYTES:
        raise UsageError(f"{param}: the schema has {size:,} bytes, more than {_MOST_SCHEMA_BYTES:,}", param=param)


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def parse_stops(given: str | list[str] | None) -> list[str]:
    """The texts at which the answer ends. Raises UsageError."""
    stops = [given] if isinstance(given, str) else given or []
    stops = [stop for stop in stops if stop]
    if len(stops) > _MOST_STOPS or any(len(stop) > _MOST_STOP_CHARS for stop in stops):
        text = f"at most {_MOST_STOPS} texts of at most {_MOST_STOP_CHARS} characters"
        raise UsageError(f"stop: {text}", param="stop")
    return stops
