"""Converts the items of a request for a response to messages of a completion. Pure."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from doors.openai.model_input import Placed
from doors.openai.requests import ChatMessage, Function, Part, ToolCall
from errors import UsageError

__all__ = ["Item", "messages_of"]

_MOST_PARTS = 1000
_KINDS = {"input_text": "text", "output_text": "text", "input_image": "image_url"}

Content = str | Annotated[list[Part], msgspec.Meta(max_length=_MOST_PARTS)]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of any ``type``; a message by default."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Content = ""


def messages_of(items: Sequence[Item]) -> list[Placed]:
    """The conversation as messages, each with its place. Raises UsageError for an item that cannot be one."""
    messages: list[Placed] = []
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item.type:
            case "message":
                if item.role is None:
                    raise UsageError(f"{where}: a message has a role", param=f"{where}.role")
                messages.append((where, ChatMessage(item.role, _content(item.content or ""))))
            case "function_call":
                _add_call(messages, item, where)
            case "function_call_output":
                content = _content(item.output)
                messages.append((where, ChatMessage("tool", content, tool_call_id=item.call_id)))
            case "reasoning":
                pass  # another model's reasoning is of no use to this one
            case _:
                text = f"items of type {item.type[:50]!r} are not understood; there are message, function_call, "
                raise UsageError(f"{where}: {text}function_call_output and reasoning", param=f"{where}.type")
    return messages


def _add_call(messages: list[Placed], item: Item, where: str) -> None:
    """Add a call to the assistant's message before it, if there is one."""
    call = ToolCall(item.call_id, Function(item.name, item.arguments))
    if messages and messages[-1][1].role == "assistant":
        place, last = messages[-1]
        messages[-1] = (place, msgspec.structs.replace(last, tool_calls=[*(last.tool_calls or ()), call]))
    else:
        messages.append((where, ChatMessage("assistant", tool_calls=[call])))


def _content(content: Content) -> Content:
    if isinstance(content, str):
        return content
    return [msgspec.structs.replace(part, type=_KINDS.get(part.type, part.type)) for part in content]
