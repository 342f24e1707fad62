"""What a client asks for, in OpenAI's words: read, bounded, and refused where no agent could do it."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from doors.openai.choices import Tool
from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["ChatMessage", "ChatRequest", "Function", "Part", "ToolCall", "ignored_among", "read_chat", "unreadable"]

_MOST_MESSAGES = 10_000
_MOST_PARTS = 1000
_MOST_TOOLS = 128
_MOST_TOLD = 20

_PLACE = re.compile(r" - at `\$\.?([^`]*)`\Z")
_NAME = re.compile(r"[a-z_]{1,40}")


class ImageUrl(msgspec.Struct, frozen=True):
    """An image by its address; this door takes data URLs."""

    url: str


class Part(msgspec.Struct, frozen=True):
    """A piece of a message's content, of whatever ``type``."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | str | None = None


class Function(msgspec.Struct, frozen=True):
    """Which function a model has called; ``arguments`` are JSON as text."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A call in a message of the assistant."""

    id: str
    function: Function


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of the conversation as the client has it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], msgspec.Meta(max_length=_MOST_PARTS)] | None = None
    tool_calls: Annotated[list[ToolCall], msgspec.Meta(max_length=_MOST_PARTS)] | None = None
    tool_call_id: str = ""


class FunctionDefinition(msgspec.Struct, frozen=True):
    """What the model is told of a function; ``parameters`` is a JSON schema."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def as_tool(self) -> Tool:
        """As both interfaces have it."""
        return Tool(self.name, self.description or "", self.parameters)


class ChatTool(msgspec.Struct, frozen=True):
    """A tool of the client."""

    function: FunctionDefinition
    type: Literal["function"] = "function"


class StreamOptions(msgspec.Struct, frozen=True):
    """How an answer is streamed."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``POST /v1/chat/completions``, as far as it is understood; what is left is in ``ignored``."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=_MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ChatTool], msgspec.Meta(max_length=_MOST_TOOLS)] | None = None
    tool_choice: Any = None
    user: str | None = None
    n: int | None = None
    response_format: Any = None
    modalities: list[str] | None = None
    logprobs: bool | None = None
    stop: str | Annotated[list[str], msgspec.Meta(max_length=100)] | None = None
    functions: Any = None
    ignored: tuple[str, ...] = ()
    """Parameters that were given and have no effect, by their names."""

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with what the run has cost."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


_read = msgspec.json.Decoder(ChatRequest)
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNDERSTOOD = frozenset(ChatRequest.__struct_fields__) - {"ignored"}
_NOTHING = b"null"


def read_chat(body: bytes) -> ChatRequest:
    """The request in a body. Raises UsageError, whose ``param`` says where it is wrong."""
    try:
        request, fields = _read.decode(body), _read_fields.decode(body)
    except DECODE_ERRORS as exc:
        raise unreadable(str(exc), "a completion") from exc
    _refuse_what_cannot_be_had(request)
    return msgspec.structs.replace(request, ignored=ignored_among(fields, _UNDERSTOOD))


def unreadable(problem: str, what: str) -> UsageError:
    """The error of a body that is no request for that, with the place of what is wrong in it."""
    place = _PLACE.search(problem)
    param = place[1] if place and place[1] else None
    return UsageError(f"the body is no request for {what}: {problem}", param=param)


def ignored_among(fields: Mapping[str, msgspec.Raw], understood: Collection[str]) -> tuple[str, ...]:
    """The names of the fields that are given and have no effect."""
    return _told(name for name, value in fields.items() if name not in understood and bytes(value) != _NOTHING)


def _told(names: Iterable[str]) -> tuple[str, ...]:
    """Only what looks like a parameter's name goes back in a header."""
    return tuple(sorted(name for name in names if _NAME.fullmatch(name))[:_MOST_TOLD])


def _refuse_what_cannot_be_had(request: ChatRequest) -> None:
    """What would change the answer must not be passed over in silence."""
    reasons = {
        "n": "an agent gives one answer" if request.n not in (None, 1) else None,
        "modalities": "agents answer in text" if request.modalities not in (None, [], ["text"]) else None,
        "logprobs": "agents tell no probabilities" if request.logprobs else None,
        "functions": "functions are out of date; pass them as tools" if request.functions else None,
    }
    for param, reason in reasons.items():
        if reason is not None:
            raise UsageError(f"{param}: {reason}", param=param)
