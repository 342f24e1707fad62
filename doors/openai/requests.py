"""What a client asks for, in OpenAI's words: read, bounded, and refused where no agent could do it."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["ChatMessage", "ChatRequest", "ChatTool", "Part", "ToolCall", "read_chat"]

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
    stop: Any = None
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
        raise _unreadable(str(exc)) from exc
    _refuse_what_cannot_be_had(request)
    left = (name for name, value in fields.items() if name not in _UNDERSTOOD and bytes(value) != _NOTHING)
    return msgspec.structs.replace(request, ignored=_told(left))


def _unreadable(problem: str) -> UsageError:
    place = _PLACE.search(problem)
    param = place[1] if place and place[1] else None
    return UsageError(f"the body is no request for a completion: {problem}", param=param)


def _told(names: Iterable[str]) -> tuple[str, ...]:
    """Only what looks like a parameter's name goes back in a header."""
    return tuple(sorted(name for name in names if _NAME.fullmatch(name))[:_MOST_TOLD])


def _refuse_what_cannot_be_had(request: ChatRequest) -> None:
    """What would change the answer must not be passed over in silence."""
    reasons = {
        "n": "an agent gives one answer" if request.n not in (None, 1) else None,
        "response_format": _wrong_format(request.response_format),
        "modalities": "agents answer in text" if request.modalities not in (None, [], ["text"]) else None,
        "logprobs": "agents tell no probabilities" if request.logprobs else None,
        "stop": "an agent cannot be stopped at a word" if request.stop not in (None, [], "") else None,
        "functions": "functions are out of date; pass them as tools" if request.functions else None,
        "tool_choice": _wrong_choice(request.tool_choice),
    }
    for param, reason in reasons.items():
        if reason is not None:
            raise UsageError(f"{param}: {reason}", param=param)


def _wrong_format(given: Any) -> str | None:
    if given is None or (isinstance(given, dict) and given.get("type") == "text"):
        return None
    return "agents answer in plain text; ask for another form in the message"


def _wrong_choice(given: Any) -> str | None:
    if given in (None, "auto", "none"):
        return None
    return "an agent decides itself which tools it calls; auto or none"
