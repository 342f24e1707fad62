"""Client tools: definitions, results and answer options of a message, and their limits. Pure."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from errors import UsageError
from wire.messages import AnswerOptions

MAX_CLIENT_TOOLS = 128
MAX_TOOL_RESULTS = 256
_MAX_TOOLS_BYTES = 512 * 1024
_MAX_RESULTS_BYTES = 4 * 1024 * 1024
_MAX_ANSWER_BYTES = 512 * 1024
_MAX_STOP_TEXTS = 4

Calls = list[dict[str, Any]]


class ClientTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as the model sees it; ``parameters`` is the JSON schema of its input."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a call, by the call's id."""

    tool_use_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    content: Any
    is_error: bool = False


def check_client_tools(tools: Sequence[ClientTool], results: Sequence[ToolResult]) -> None:
    """Raise UsageError for duplicate names, and for definitions or results above their size."""
    _check_unique("client_tools", "tool", (tool.name for tool in tools))
    _check_unique("tool_results", "result of the call", (result.tool_use_id for result in results))
    for name, value, limit in (
        ("client_tools", tools, _MAX_TOOLS_BYTES),
        ("tool_results", results, _MAX_RESULTS_BYTES),
    ):
        size = len(msgspec.json.encode(value)) if value else 0
        if size > limit:
            raise UsageError(f"{name}: {size:,} bytes, more than {limit:,}")


def check_answer_options(wanted: AnswerOptions, tools: Sequence[ClientTool]) -> None:
    """Raise UsageError for options that are too large, or require a tool that is not among ``tools``."""
    size = len(msgspec.json.encode(wanted))
    if size > _MAX_ANSWER_BYTES:
        raise UsageError(f"answer: {size:,} bytes, more than {_MAX_ANSWER_BYTES:,}")
    if len(wanted.stop) > _MAX_STOP_TEXTS or not all(wanted.stop):
        raise UsageError(f"answer.stop: at most {_MAX_STOP_TEXTS} texts, none of them empty")
    for name in wanted.must_call:
        if name not in {tool.name for tool in tools}:
            raise UsageError(f"answer.must_call: there is no {name[:100]!r} among client_tools")


def _check_unique(field: str, what: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{field}: there are two of the {what} {name!r}")
        seen.add(name)


def bounded_calls(calls: Calls, limit: int) -> Calls:
    """The first calls, as many as fit into ``limit`` bytes of JSON."""
    kept: Calls = []
    for call in calls:
        limit -= len(msgspec.json.encode(call))
        if limit < 0:
            break
        kept.append(call)
    return kept
