"""What a request asks of an agent, the same for both of OpenAI's interfaces. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from doors.openai.choices import choose, json_answer, stops_of
from doors.openai.requests import ChatMessage, ChatRequest
from wire.messages import AnswerOptions

__all__ = ["ModelInput", "Placed", "of_chat"]

Placed = tuple[str, ChatMessage]
"""A message with its place in the request, such as ``messages[0]``."""


class ModelInput(NamedTuple):
    """``tools``: the client's, as the method ``prompt`` takes them.

    ``all_is_new``: a known session has not seen the instructions among the messages either.
    """

    model: str
    messages: Sequence[Placed]
    tools: list[dict[str, Any]]
    answer: AnswerOptions
    all_is_new: bool = False


def of_chat(chat: ChatRequest) -> ModelInput:
    """The input of a request for a completion. Raises UsageError."""
    choice = choose([tool.function.as_tool() for tool in chat.tools or ()], chat.tool_choice)
    answer = AnswerOptions(
        json=json_answer(chat.response_format, "response_format"),
        must_call=choice.must_call,
        stop=stops_of(chat.stop),
    )
    messages = [(f"messages[{at}]", message) for at, message in enumerate(chat.messages)]
    return ModelInput(chat.model, messages, [tool.as_client_tool() for tool in choice.tools], answer)
