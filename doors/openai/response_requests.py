"""Requests to ``/v1/responses``: read, bounded, and refused where no agent could answer them. Pure."""

from typing import Annotated, Any

import msgspec

from doors.openai.choices import Tool, choose, json_answer
from doors.openai.model_input import ModelInput
from doors.openai.requests import decoded, refuse
from doors.openai.response_items import Item, messages_of
from errors import UsageError
from wire.messages import AnswerOptions

__all__ = ["ResponseRequest", "input_of", "read_response"]

_MOST_ITEMS = 10_000
_MOST_TOOLS = 128
_MOST_FACTS = 16


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
    input: str | Annotated[list[Item], msgspec.Meta(min_length=1, max_length=_MOST_ITEMS)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: Annotated[list[ResponseTool], msgspec.Meta(max_length=_MOST_TOOLS)] | None = None
    tool_choice: Any = None
    text: TextOptions | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=_MOST_FACTS)] | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    ignored: tuple[str, ...] = ()
    """Parameters that were given and have no effect, by their names."""


_read = msgspec.json.Decoder(ResponseRequest)


def read_response(body: bytes) -> ResponseRequest:
    """The request in a body. Raises UsageError, whose ``param`` says where it is wrong."""
    request = decoded(body, _read, "a response")
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
    refuse(reasons)
    return request


def input_of(request: ResponseRequest) -> ModelInput:
    """The input of a request for a response. Raises UsageError."""
    said = request.input
    items = [Item(role="user", content=said)] if isinstance(said, str) else said
    choice = choose([_tool(tool, at) for at, tool in enumerate(request.tools or ())], request.tool_choice)
    answer = AnswerOptions(
        instructions=request.instructions or "",
        json=json_answer(request.text.format if request.text else None, "text.format"),
        must_call=choice.must_call,
    )
    messages = messages_of(items)
    tools = [tool.as_client_tool() for tool in choice.tools]
    return ModelInput(request.model, messages, tools, answer, all_is_new=request.previous_response_id is not None)


def _tool(given: ResponseTool, number: int) -> Tool:
    where = f"tools[{number}]"
    if given.type != "function":
        text = f"tools of type {given.type[:50]!r} are not here; there are functions, which the client carries out"
        raise UsageError(f"{where}: {text}", param=f"{where}.type")
    if not given.name:
        raise UsageError(f"{where}: a function has a name", param=f"{where}.name")
    return Tool(given.name, given.description or "", given.parameters)
