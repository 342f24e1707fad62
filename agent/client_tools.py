"""Tools that the client carries out: their definitions, and the results that its next prompt brings. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agent.models.base import ToolDefinition
from agent.results import failure
from wire.entries import ToolResultBlock, ToolUseBlock

MAX_TOOLS = 128


class ClientToolsError(ValueError):
    """Invalid client tools or results; the message says what is wrong."""


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})


class _Wrapped(msgspec.Struct, frozen=True):
    function: _Function


class _Result(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: Any
    is_error: bool = False


def definitions_of(given: Sequence[dict[str, Any]], must_call: Sequence[str] = ()) -> dict[str, ToolDefinition]:
    """By name; also in the form ``{"type": "function", "function": {...}}``. Raises ClientToolsError.

    ``must_call``: names of tools that are required, which must be among them.
    """
    if len(given) > MAX_TOOLS:
        raise ClientToolsError(f"client_tools: {len(given)} tools, more than {MAX_TOOLS}")
    found: dict[str, ToolDefinition] = {}
    for number, tool in enumerate(given):
        function = _decode_function(tool, number)
        if not function.name or function.name in found:
            raise ClientToolsError(f"client_tools[{number}]: the name {function.name[:100]!r} is empty or given twice")
        found[function.name] = ToolDefinition(function.name, function.description, function.parameters)
    for name in must_call:
        if name not in found:
            raise ClientToolsError(f"answer.must_call: there is no client tool {name[:100]!r}")
    return found


def _decode_function(tool: dict[str, Any], number: int) -> _Function:
    try:
        if "function" in tool:
            return msgspec.convert(tool, _Wrapped).function
        return msgspec.convert(tool, _Function)
    except msgspec.ValidationError as exc:
        raise ClientToolsError(f"client_tools[{number}]: {exc}") from exc


def results_for(calls: Mapping[str, ToolUseBlock], given: Sequence[dict[str, Any]]) -> list[ToolResultBlock]:
    """One result for each of these open calls, in their order; one that was not given says so.

    Raises ClientToolsError for a result of no open call, or a second one.
    """
    found: dict[str, ToolResultBlock] = {}
    for number, raw in enumerate(given):
        try:
            result = msgspec.convert(raw, _Result)
        except msgspec.ValidationError as exc:
            raise ClientToolsError(f"tool_results[{number}]: {exc}") from exc
        if result.tool_use_id not in calls or result.tool_use_id in found:
            raise ClientToolsError(f"tool_results[{number}]: no call {result.tool_use_id[:100]!r} waits for a result")
        found[result.tool_use_id] = ToolResultBlock(result.tool_use_id, result.content, is_error=result.is_error)
    return [found.get(call_id) or _missing_result(call) for call_id, call in calls.items()]


def _missing_result(call: ToolUseBlock) -> ToolResultBlock:
    words = failure(f"The client gave no result for the call of {call.name}.", "aborted", retryable=True)
    return ToolResultBlock(call.id, words, is_error=True)
