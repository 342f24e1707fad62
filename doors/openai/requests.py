"""Chat completion requests: decoded, bounded, refused where no agent could do them; texts and images. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from doors.openai.options import FunctionTool, apply_tool_choice, parse_response_format, parse_stops
from errors import UsageError
from wire.framing import DECODE_ERRORS
from wire.messages import AnswerOptions, ImageContent

MOST_MESSAGES = 10_000
_MOST_PARTS = 1000
MOST_TOOLS = 128
_MAX_IGNORED_SHOWN = 20

_ERROR_PATH = re.compile(r" - at `\$\.?([^`]*)`\Z")
_NAME = re.compile(r"[a-z_]{1,40}")


class ImageUrl(msgspec.Struct, frozen=True):
    """An image by its address; this door takes data URLs."""

    url: str


class ContentPart(msgspec.Struct, frozen=True):
    """A piece of a message's content, of whatever ``type``."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | str | None = None


Content = str | Annotated[list[ContentPart], msgspec.Meta(max_length=_MOST_PARTS)]


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
    content: Content | None = None
    tool_calls: Annotated[list[ToolCall], msgspec.Meta(max_length=_MOST_PARTS)] | None = None
    tool_call_id: str = ""


class ChatTool(msgspec.Struct, frozen=True):
    """A tool of the client."""

    function: FunctionTool
    type: Literal["function"] = "function"


class StreamOptions(msgspec.Struct, frozen=True):
    """How an answer is streamed."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``POST /v1/chat/completions``, as far as it is understood; what is left is in ``ignored``."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ChatTool], msgspec.Meta(max_length=MOST_TOOLS)] | None = None
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
_JSON_NULL = b"null"
_CONVERSATION_PARAMS = frozenset(
    f"{kind}{part}" for kind in ("session", "conversation", "thread") for part in ("", "id", "key")
)
_Body = TypeVar("_Body", bound=msgspec.Struct)


def read_chat(body: bytes) -> ChatRequest:
    """The request in a body. Raises UsageError, whose ``param`` says where it is wrong."""
    request = decode_body(body, _read, "a completion")
    reasons = {
        "n": "an agent gives one answer" if request.n not in (None, 1) else None,
        "modalities": "agents answer in text" if request.modalities not in (None, [], ["text"]) else None,
        "logprobs": "agents return no probabilities" if request.logprobs else None,
        "functions": "functions are out of date; pass them as tools" if request.functions else None,
    }
    reject_unsupported(reasons)
    return request


def decode_body(body: bytes, decoder: "msgspec.json.Decoder[_Body]", what: str) -> _Body:
    """A body as a request for ``what``, its ``ignored`` filled in: the parameters that have no field.

    Raises UsageError, whose ``param`` is the place that the decoder rejects.
    """
    try:
        request, fields = decoder.decode(body), _read_fields.decode(body)
    except DECODE_ERRORS as exc:
        place = _ERROR_PATH.search(str(exc))
        param = place[1] if place and place[1] else None
        raise UsageError(f"the body is no request for {what}: {exc}", param=param) from exc
    understood = {*request.__struct_fields__} - {"ignored"}
    ignored = [name for name, value in fields.items() if name not in understood and bytes(value) != _JSON_NULL]
    reject_conversation_params(ignored)
    shown = sorted(name for name in ignored if _NAME.fullmatch(name))  # they go back in a header
    return msgspec.structs.replace(request, ignored=tuple(shown[:_MAX_IGNORED_SHOWN]))


def reject_conversation_params(names: Iterable[str]) -> None:
    """Raise UsageError for the name of a conversation where it would have no effect: two would be one, or none."""
    for name in names:
        if name.lower().replace("_", "").replace("-", "") in _CONVERSATION_PARAMS:
            reason = "conversations are named by user or by the header X-Pool-Session"
            raise UsageError(f"{name}: {reason}", param=name)


def reject_unsupported(reasons: Mapping[str, str | None]) -> None:
    """Raise UsageError for the first parameter with a reason: ignored, it would change the answer unnoticed."""
    for param, reason in reasons.items():
        if reason is not None:
            raise UsageError(f"{param}: {reason}", param=param)


MOST_IMAGES = 32
_DATA_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]{1,40});base64,")


class ImageCollector:
    """The images of a prompt, in the order in which they are met."""

    def __init__(self) -> None:
        self.images: list[ImageContent] = []

    def add(self, part: ContentPart, where: str) -> str:
        """Take an image in; what stands in the text for it. Raises UsageError."""
        url = part.image_url if isinstance(part.image_url, str) else part.image_url.url if part.image_url else ""
        head = _DATA_URL.match(url)
        if head is None:
            text = "images are passed as data URLs (data:image/png;base64,...); an image elsewhere is not fetched"
            raise UsageError(f"{where}: {text}", param=where)
        data = url[head.end() :]
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise UsageError(f"{where}: what should be base64 is none: {exc}", param=where) from exc
        if len(self.images) == MOST_IMAGES:
            raise UsageError(f"{where}: a request has at most {MOST_IMAGES} images", param=where)
        self.images.append(ImageContent(data=data, mime_type=head[1]))
        return f"[image {len(self.images)}]"


def message_text(message: ChatMessage, place: str, pictures: ImageCollector | None, *, marks: bool = True) -> str:
    """All that a message says; where ``pictures`` is None it may hold no images. ``place``: where in the request it is.

    ``marks``: say in the text where an image stood. Raises UsageError for parts of another kind.
    """
    if not isinstance(message.content, list):
        return message.content or ""
    texts = []
    for index, part in enumerate(message.content):
        where = f"{place}.content[{index}]"
        match part.type:
            case "text":
                texts.append(part.text)
            case "refusal":
                texts.append(part.refusal)
            case "image_url" if pictures is not None:
                mark = pictures.add(part, where)
                texts += [mark] if marks else []
            case "image_url":
                raise UsageError(f"{where}: images stand in messages of the user only", param=where)
            case _:
                problem = f"parts of type {part.type[:50]!r} are not understood; there are: text, image_url"
                raise UsageError(f"{where}: {problem}", param=where)
    return "\n".join(texts)


LocatedMessage = tuple[str, ChatMessage]
"""A message with its place in the request, such as ``messages[0]``."""


class ModelInput(NamedTuple):
    """``tools``: the client's, as the method ``prompt`` takes them.

    ``all_is_new``: a known session has not seen the instructions among the messages either.
    """

    model: str
    messages: Sequence[LocatedMessage]
    tools: list[dict[str, Any]]
    answer: AnswerOptions
    all_is_new: bool = False


def chat_input(chat: ChatRequest) -> ModelInput:
    """The input of a request for a completion. Raises UsageError."""
    choice = apply_tool_choice([tool.function for tool in chat.tools or ()], chat.tool_choice)
    answer = AnswerOptions(
        json=parse_response_format(chat.response_format, "response_format"),
        must_call=choice.must_call,
        stop=parse_stops(chat.stop),
    )
    messages = [(f"messages[{at}]", message) for at, message in enumerate(chat.messages)]
    return ModelInput(chat.model, messages, [tool.as_client_tool() for tool in choice.tools], answer)
