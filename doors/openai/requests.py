"""What a client asks for, in OpenAI's words: read, bounded, and refused where no agent could do it."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from doors.openai.choices import Tool
from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = [
    "ChatMessage",
    "ChatRequest",
    "Function",
    "Part",
    "ToolCall",
    "decoded",
    "read_chat",
    "refuse",
    "refuse_conversations",
]

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
_NOTHING = b"null"
_OF_CONVERSATIONS = frozenset(
    f"{kind}{part}" for kind in ("session", "conversation", "thread") for part in ("", "id", "key")
)
_Body = TypeVar("_Body", bound=msgspec.Struct)


def read_chat(body: bytes) -> ChatRequest:
    """The request in a body. Raises UsageError, whose ``param`` says where it is wrong."""
    request = decoded(body, _read, "a completion")
    reasons = {
        "n": "an agent gives one answer" if request.n not in (None, 1) else None,
        "modalities": "agents answer in text" if request.modalities not in (None, [], ["text"]) else None,
        "logprobs": "agents tell no probabilities" if request.logprobs else None,
        "functions": "functions are out of date; pass them as tools" if request.functions else None,
    }
    refuse(reasons)
    return request


def decoded(body: bytes, decoder: "msgspec.json.Decoder[_Body]", what: str) -> _Body:
    """A body as a request for ``what``, its ``ignored`` filled in: the parameters that have no field.

    Raises UsageError, whose ``param`` is the place that the decoder rejects.
    """
    try:
        request, fields = decoder.decode(body), _read_fields.decode(body)
    except DECODE_ERRORS as exc:
        place = _PLACE.search(str(exc))
        param = place[1] if place and place[1] else None
        raise UsageError(f"the body is no request for {what}: {exc}", param=param) from exc
    understood = {*request.__struct_fields__} - {"ignored"}
    ignored = [name for name, value in fields.items() if name not in understood and bytes(value) != _NOTHING]
    refuse_conversations(ignored)
    return msgspec.structs.replace(request, ignored=_header_safe(ignored))


def refuse_conversations(names: Iterable[str]) -> None:
    """Raise UsageError for the name of a conversation where it would have no effect: two would be one, or none."""
    for name in names:
        if name.lower().replace("_", "").replace("-", "") in _OF_CONVERSATIONS:
            reason = "conversations are named by user or by the header X-Pool-Session"
            raise UsageError(f"{name}: {reason}", param=name)


def refuse(reasons: Mapping[str, str | None]) -> None:
    """Raise UsageError for the first parameter with a reason: ignored, it would change the answer unnoticed."""
    for param, reason in reasons.items():
        if reason is not None:
            raise UsageError(f"{param}: {reason}", param=param)


def _header_safe(names: Iterable[str]) -> tuple[str, ...]:
    """The names that look like a parameter's, sorted and bounded: they go back in a header."""
    return tuple(sorted(name for name in names if _NAME.fullmatch(name))[:_MOST_TOLD])
