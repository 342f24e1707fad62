"""From the messages of a request to one prompt of the pool. Pure.

OpenAI's clients send the whole conversation each time; a session of the pool remembers it. A session with a transcript
gets what is new: all that follows the assistant's last message. A session without one gets everything in one text:
instructions, the conversation so far, and the message to answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from doors.openai.requests import ChatMessage, ImageCollector, LocatedMessage, ModelInput, message_text
from errors import UsageError
from wire.messages import ImageContent

_INSTRUCTION_ROLES = ("system", "developer")
_CONTINUE_TEXT = "Go on from here: the results of the tools stand above."
_INSTRUCTIONS_HEADING = "Instructions:"
_QUESTION_HEADING = "Now answer this:"


class ClientToolResult(NamedTuple):
    """The result of a call, by the id that the client sees."""

    call_id: str
    content: str


class RunPrompt(NamedTuple):
    """What a run is begun with."""

    text: str
    images: list[ImageContent]
    results: list[ClientToolResult]


class _ConversationParts(NamedTuple):
    """A conversation, each message with its place."""

    instructions: Sequence[LocatedMessage]
    past: Sequence[LocatedMessage]
    new: Sequence[LocatedMessage]


def answered_call_ids(request: ModelInput) -> list[str]:
    """The ids of the calls to which the request brings results."""
    return [message.tool_call_id for _, message in _parts(request).new if message.role == "tool"]


def incremental_prompt(request: ModelInput) -> RunPrompt:
    """For a session that knows the conversation so far. Raises UsageError."""
    instructions, past, new = _parts(request)
    pictures = ImageCollector()
    texts = [message_text(message, at, pictures, marks=False) for at, message in new if message.role != "tool"]
    results = [
        ClientToolResult(_answered_call_id(message, at), message_text(message, at, None))
        for at, message in new
        if _is_tool_result(message)
    ]
    asked = [text for text in texts if text]
    if request.all_is_new:
        _reject_past_messages(past)
        if instructions:
            said = [message_text(message, at, None) for at, message in instructions]
            asked = [_INSTRUCTIONS_HEADING, *said, *([_QUESTION_HEADING, *asked] if asked else [])]
    return RunPrompt("\n\n".join(asked), pictures.images, results)


def full_prompt(request: ModelInput) -> RunPrompt:
    """For a session that knows nothing yet. Raises UsageError."""
    instructions, past, new = _parts(request)
    pictures = ImageCollector()
    if not instructions and not past and not any(_is_tool_result(message) for _, message in new):
        return incremental_prompt(request)
    calls = {call.id: call.function.name for _, message in past for call in message.tool_calls or ()}
    tools = [pair for pair in new if _is_tool_result(pair[1])]
    said = [text for at, message in (*past, *tools) for text in _describe_message(message, at, pictures, calls)]
    asked = [message_text(message, at, pictures) for at, message in new if not _is_tool_result(message)]
    sections = {
        _INSTRUCTIONS_HEADING: [message_text(message, at, None) for at, message in instructions],
        "The conversation so far:": said,
        _QUESTION_HEADING: [text for text in asked if text] or [_CONTINUE_TEXT],
    }
    texts = ["\n\n".join([heading, *texts]) for heading, texts in sections.items() if texts]
    return RunPrompt("\n\n".join(texts), pictures.images, [])


# --- the parts --------------------------------------------------------------------------------------------------------


def _parts(request: ModelInput) -> _ConversationParts:
    instructions = list(takewhile(lambda pair: pair[1].role in _INSTRUCTION_ROLES, request.messages))
    rest = request.messages[len(instructions) :]
    begin = next((at + 1 for at in range(len(rest) - 1, -1, -1) if rest[at][1].role == "assistant"), 0)
    new = rest[begin:]
    if not any(message.role in ("user", "tool") for _, message in new):
        text = "there is nothing to answer: the last message must be one of the user, or the result of a tool"
        raise UsageError(text, param=request.messages[0][0].partition("[")[0] if request.messages else "input")
    return _ConversationParts(instructions, rest[:begin], new)


def _reject_past_messages(past: Iterable[LocatedMessage]) -> None:
    """Raise UsageError for messages before one of the assistant's: they would be left out."""
    for place, message in past:
        if message.role != "assistant":
            text = "beside previous_response_id, no message may come before one of the assistant"
            raise UsageError(f"{place}: {text}", param=place)


def _is_tool_result(message: ChatMessage) -> bool:
    return message.role == "tool"


def _answered_call_id(message: ChatMessage, at: str) -> str:
    if not message.tool_call_id:
        raise UsageError("a message of a tool says which call it answers", param=f"{at}.tool_call_id")
    return message.tool_call_id


def _describe_message(message: ChatMessage, at: str, pictures: ImageCollector, calls: dict[str, str]) -> Iterator[str]:
    """A message as a report of it: who said it, what was called, what came of it."""
    if _is_tool_result(message):
        yield f"Result of {calls.get(_answered_call_id(message, at), 'a tool')}: {message_text(message, at, None)}"
        return
    who = {"user": "User", "assistant": "Assistant"}.get(message.role, "Instructions")
    text = message_text(message, at, pictures if message.role == "user" else None)
    if text:
        yield f"{who}: {text}"
    for call in message.tool_calls or ():
        yield f"Assistant called {call.function.name} with {call.function.arguments or '{}'}"
