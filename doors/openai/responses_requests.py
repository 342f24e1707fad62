"""Requests to ``/v1/responses``, and their items as messages of a completion. Pure."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from doors.openai.options import FunctionTool, apply_tool_choice, parse_response_format
from doors.openai.requests import (
    MOST_MESSAGES,
    MOST_TOOLS,
    ChatMessage,
    Content,
    Function,
    LocatedMessage,
    ModelInput,
    ToolCall,
    decode_body,
    reject_unsupported,
)
from errors import UsageError
from wire.messages import AnswerOptions

_KINDS = {"input_text": "text", "output_text": "text", "input_image": "image_url"}


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of any ``type``; a message by default."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Content = ""


def items_to_messages(items: Sequence[InputItem]) -> list[LocatedMessage]:
    """The conversation as messages, each with its place. Raises UsageError for an item that cannot be one."""
    messages: list[LocatedMessage] = []
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item.type:
            case "message":
                if item.role is None:
                    raise UsageError(f"{where}: a message has a role", param=f"{where}.role")
                messages.append((where, ChatMessage(item.role, _to_chat_content(item.content or ""))))
            case "function_call":
                _add_call(messages, item, where)
            case "function_call_output":
                content = _to_chat_content(item.output)
                messages.append((where, ChatMessage("tool", content, tool_call_id=item.call_id)))
            case "reasoning":
                pass  # another model's reasoning is of no use to this one
            case _:
                text = f"items of type {item.type[:50]!r} are not understood; there are message, function_call, "
                raise UsageError(f"{where}: {text}function_call_output and reasoning", param=f"{where}.type")
    return messages


def _add_call(messages: list[LocatedMessage], item: InputItem, where: str) -> None:
    """Add a call to the assistant's message before it, if there is one."""
    call = ToolCall(item.call_id, Function(item.name, item.arguments))
    if messages and messages[-1][1].role == "assistant":
        place, last = messages[-1]
        messages[-1] = (place, msgspec.structs.replace(last, tool_calls=[*(last.tool_calls or ()), call]))
    else:
        messages.append((where, ChatMessage("assistant", tool_calls=[call])))


def _to_chat_content(content: Content) -> Content:
    if isinstance(content, str):
        return content
    return [msgspec.structs.replace(part, type=_KINDS.get(part.type, part.type)) for part in content]


_MAX_METADATA = 16


class ResponseTool(msgspec.Struct, frozen=True):
    """A tool of the client; only ``type`` function is accepted."""

    type: str
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextOptions(msgspec.Struct, frozen=True):
    """Options for the text of the answer."""

    format: Any = None


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``POST /v1/responses``, as far as it is understood; what is left is in ``ignored``."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    input: str | Annotated[list[InputItem], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: Annotated[list[ResponseTool], msgspec.Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Any = None
    text: TextOptions | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=_MAX_METADATA)] | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    ignored: tuple[str, ...] = ()
    """Parameters that were given and have no effect, by their names."""


_read = msgspec.json.Decoder(ResponseRequest)


def read_response(body: bytes) -> ResponseRequest:
    """The request in a body. Raises UsageError, whose ``param`` says where it is wrong."""
    request = decode_body(body, _read, "a response")
    reasons = {
        "background": "a response is waited for; the method agent of the API begins a run and returns"
        if request.background
        else None,
        "conversation": "there are no conversations apart from responses; name one by previous_response_id, by user or "
        "by the header X-Pool-Session"
        if request.conversation is not None
        else None,
        "prompt": "there are no stored prompts; send the text as input or instructions" if request.prompt else None,
    }
    reject_unsupported(reasons)
    return request


def response_input(request: ResponseRequest) -> ModelInput:
    """The input of a request for a response. Raises UsageError."""
    said = request.input
    items = [InputItem(role="user", content=said)] if isinstance(said, str) else said
    choice = apply_tool_choice([_tool(tool, at) for at, tool in enumerate(request.tools or ())], request.tool_choice)
    answer = AnswerOptions(
        instructions=request.instructions or "",
        json=parse_response_format(request.text.format if request.text else None, "text.format"),
        must_call=choice.must_call,
    )
    messages = items_to_messages(items)
    tools = [tool.as_client_tool() for tool in choice.tools]
    return ModelInput(request.model, messages, tools, answer, all_is_new=request.previous_response_id is not None)


def _tool(given: ResponseTool, number: int) -> FunctionTool:
    where = f"tools[{number}]"
    if given.type != "function":
        text = f"tools of type {given.type[:50]!r} are not here; there are functions, which the client carries out"
        raise UsageError(f"{where}: {text}", param=f"{where}.type")
    if not given.name:
        raise UsageError(f"{where}: a function has a name", param=f"{where}.name")
    return FunctionTool(given.name, given.description, given.parameters)
