"""Translates a conversation into a chat-completions request. Pure, one way.

Thinking is left out. Names and ids that a server would refuse are replaced, the same way each time; ``ToolNameMap``
maps tool names back.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agent.models.base import ModelRequest, ToolDefinition
from wire.entries import ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage
from wire.messages import AnswerOptions, JsonAnswer

Json = dict[str, Any]

_MAX_NAME_CHARS = 64
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class CompatFlags(msgspec.Struct, frozen=True):
    """What a server takes of what most take. ``strict_roles``: user and assistant must alternate.

    ``answer_options``: ``response_format`` and ``tool_choice``.
    """

    images: bool = True
    strict_roles: bool = False
    reasoning_effort: bool = True
    stream_options: bool = True
    answer_options: bool = True


class ToolNameMap:
    """Tool names as servers take them (letters, digits, ``_`` and ``-``, at most 64), each for one name of ours."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._original: dict[str, str] = {}
        for name in names:
            self._original.setdefault(self.to_server(name), name)

    def to_server(self, name: str) -> str:
        """The name to send."""
        safe = _UNSAFE.sub("_", name)[:_MAX_NAME_CHARS]
        if safe == name and name:
            return name
        return f"{safe[: _MAX_NAME_CHARS - 9] or 'nameless'}_{_digest(name)[:8]}"

    def from_server(self, name: str) -> str:
        """The name that was meant; one that was never sent is passed on."""
        return self._original.get(name, name)


def request_body(model: str, request: ModelRequest, names: ToolNameMap, compat: CompatFlags) -> Json:
    """The JSON of one model call, to be streamed."""
    body: Json = {"model": model, "messages": to_messages(request, names, compat), "stream": True}
    if compat.stream_options:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_definition(tool, names) for tool in request.tools]
    if request.thinking != "off" and compat.reasoning_effort:
        body["reasoning_effort"] = request.thinking
    if request.answer is not None:
        body |= _answer_options(request.answer, names, compat)
    return body


def _answer_options(options: AnswerOptions, names: ToolNameMap, compat: CompatFlags) -> Json:
    body: Json = {"stop": options.stop} if options.stop else {}
    if not compat.answer_options:
        return body
    if options.json is not None:
        body["response_format"] = _response_format(options.json)
    if len(options.must_call) == 1:
        body["tool_choice"] = {"type": "function", "function": {"name": names.to_server(options.must_call[0])}}
    elif options.must_call:
        body["tool_choice"] = "required"
    return body


def _response_format(wanted: JsonAnswer) -> Json:
    if wanted.schema is None:
        return {"type": "json_object"}
    more = {"description": wanted.description, "strict": wanted.strict}
    given = {key: value for key, value in more.items() if value is not None}
    return {"type": "json_schema", "json_schema": {"name": wanted.name, "schema": wanted.schema, **given}}


def to_messages(request: ModelRequest, names: ToolNameMap, compat: CompatFlags) -> list[Json]:
    """The system prompt and all messages; those that hold nothing for the model are left out."""
    messages: list[Json] = []
    for message in request.messages:
        if message.role == "assistant":
            messages += _from_assistant(message, names)
        else:
            messages += _from_user(message, compat)
    if compat.strict_roles:
        messages = _merge_roles(messages)
    system = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    return [*system, *messages]


def _definition(tool: ToolDefinition, names: ToolNameMap) -> Json:
    function = {"name": names.to_server(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _from_assistant(message: TranscriptMessage, names: ToolNameMap) -> list[Json]:
    calls = [_call(call, names) for call in message.calls]
    if calls:
        return [{"role": "assistant", "content": message.text or None, "tool_calls": calls}]
    return [{"role": "assistant", "content": message.text}] if message.text else []


def _call(call: ToolUseBlock, names: ToolNameMap) -> Json:
    # Servers decode the arguments of earlier calls again and refuse the request when they are no object.
    given = call.input if isinstance(call.input, Mapping) else {"invalid_arguments": call.input}
    arguments = msgspec.json.encode(given).decode()
    return {
        "id": _call_id(call.id),
        "type": "function",
        "function": {"name": names.to_server(call.name), "arguments": arguments},
    }


def _call_id(call_id: str) -> str:
    return call_id if _SAFE_ID.fullmatch(call_id) else f"call_{_digest(call_id)[:24]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _from_user(message: TranscriptMessage, compat: CompatFlags) -> list[Json]:
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    parts = [part for block in message.content if (part := _part(block, compat)) is not None]
    shown = [part for result in results for image in result.images if (part := _part(image, compat)) is not None]
    if shown:  # a tool's message takes nothing but text
        parts = [{"type": "text", "text": "The images that these tools returned:"}, *shown, *parts]
    answers = [_result(block) for block in results]
    return [*answers, {"role": "user", "content": _simplify_content(parts)}] if parts else answers


def _result(block: ToolResultBlock) -> Json:
    content = block.content if isinstance(block.content, str) else msgspec.json.encode(block.content).decode()
    return {"role": "tool", "tool_call_id": _call_id(block.tool_use_id), "content": content}


def _part(block: object, compat: CompatFlags) -> Json | None:
    match block:
        case TextBlock(text) if text:
            return {"type": "text", "text": text}
        case ImageBlock(data, mime_type) if compat.images:
            return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
        case ImageBlock():
            return {"type": "text", "text": "[an image was left out: this model takes none]"}
        case _:
            return None


def _simplify_content(parts: Sequence[Json]) -> str | list[Json]:
    """Text alone as a string: some servers know no parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return list(parts)


def _merge_roles(messages: Sequence[Json]) -> list[Json]:
    """Neighbours of one role in one, a word of the model between tools and user, the user first."""
    joined: list[Json] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None and message["role"] != "user":
            joined.append({"role": "user", "content": "(the conversation so far was left out)"})
        elif last is not None and last["role"] == "tool" and message["role"] == "user":
            joined.append({"role": "assistant", "content": "I have the results."})
        elif last is not None and last["role"] == message["role"] and message["role"] != "tool":
            joined[-1] = _join(last, message)
            continue
        joined.append(message)
    return joined


def _join(first: Json, second: Json) -> Json:
    joined = {"role": first["role"], "content": _join_contents(first["content"], second["content"])}
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return {**joined, "tool_calls": calls} if calls else joined


def _join_contents(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
