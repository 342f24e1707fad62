"""What a tool is: a name, a validated input with its JSON schema, one async call that returns a result or fails.

An invalid input is an error that the model can act on: it names every wrong field, shows its value and says what is
expected. Numbers and booleans given as text (``"5"``, ``"true"``) are converted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from agent.tools.file_state import FileTracker
from wire.call_page import CallPart
from wire.entries import ImageBlock

if TYPE_CHECKING:
    from agent.processes.registry import ProcessRegistry  # heavy, and not needed to say what a tool is


@lru_cache(maxsize=256)
def input_schema(input_type: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema without references: not every server follows them at the top level.

    Input types must be trees. Cached: do not change the result.
    """
    (schema,), components = msgspec.json.schema_components([input_type])
    inlined: dict[str, Any] = _inline_refs(schema, components)
    inlined.pop("title", None)
    inlined.pop("description", None)  # the class's docstring
    return inlined


def _inline_refs(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline_refs(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = components[schema["$ref"].rpartition("/")[2]]
        return _inline_refs(target | {name: value for name, value in schema.items() if name != "$ref"}, components)
    return {name: _inline_refs(value, components) for name, value in schema.items()}


ErrorType: TypeAlias = Literal["validation", "runtime", "logical", "aborted", "denied"]

Effects: TypeAlias = Literal["read", "write", "run", "none"]
"""What a call may do to the world (``none``: it touches only the agent itself). Mode readonly allows read and none."""


Report: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes how a call stands: ``tail``, the last 2,000 characters of its output so far, and facts as in ``details``."""


class ToolError(Exception):
    """The call failed; the message, the note and the recommendations are for the model, ``details`` are not."""

    def __init__(
        self,
        message: str,
        error_type: ErrorType = "runtime",
        *,
        retryable: bool = False,
        note: str | None = None,
        recommendations: Sequence[str] = (),
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.error_type: ErrorType = error_type
        self.retryable = retryable
        self.note = note
        self.recommendations = list(recommendations)
        self.details = details or {}


class ToolOutput(msgspec.Struct, frozen=True):
    """A result: what the model reads, facts for people and programs beside it (``details``), and images."""

    text: str
    details: dict[str, Any] = {}
    images: list[ImageBlock] = []


class ToolContext(msgspec.Struct, frozen=True):
    """What a call may use: the confining directory (a real path), an environment, a place to show progress.

    A worker has one for all calls, without what belongs to one of them: ``report``, ``call_id``, ``scope_key`` and
    ``outputs``.

    ``outputs`` is the conversation's directory (a real path; made when first needed) for the full text of results that
    were cut; the tools may read there as in ``cwd``, and in the directories ``readable`` (real paths).
    ``allow_outside`` lifts the confinement to ``cwd``. Outputs of other conversations can never be
    read. No file tool may write what is, or lies in, one of ``protected`` (real paths). ``processes`` runs commands; in
    the background they belong to ``scope_key``, the conversation, which also gets the notices of their ends.
    """

    cwd: str
    environment: dict[str, str]
    processes: "ProcessRegistry"
    report: Report = lambda _: None
    call_id: str = ""
    files: FileTracker = msgspec.field(default_factory=FileTracker)
    scope_key: str = ""
    outputs: str = ""
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    allow_outside: bool = False


class Tool(ABC):
    """One tool. Subclasses set the fields and implement ``run``.

    ``input_type``: what the model's JSON decodes to. ``timeout`` in seconds bounds a call; None: the tool bounds it.
    """

    name: str
    description: str
    effects: Effects
    input_type: type[msgspec.Struct]
    timeout: float | None = 60.0

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the input."""
        return input_schema(self.input_type)

    @abstractmethod
    async def run(self, arguments: Any, context: ToolContext) -> str | ToolOutput:
        """Carry out a call; ``arguments`` is an ``input_type``. Raises ToolError. Leaves nothing running."""

    async def describe(self, arguments: Any, context: ToolContext) -> list[CallPart]:  # noqa: ARG002 - for subclasses
        """What a call would do, for the person who approves it. May read files; changes nothing."""
        return [CallPart(name, _shown(value)) for name, value in msgspec.to_builtins(arguments).items()]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


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
