"""The interface of a model: an async iterator of typed pieces. A new model is one file beside this one."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from wire.entries import TranscriptMessage
from wire.messages import AnswerOptions


class ModelError(Exception):
    """The model failed; the message is for the user.

    ``transient``: the same call may succeed later, after ``retry_after`` seconds where the server named a time.
    ``overflow``: the conversation is too long for the model; a shorter one may be answered.
    """

    def __init__(
        self, message: str, *, transient: bool = False, retry_after: float | None = None, overflow: bool = False
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.overflow = overflow


class TextPiece(msgspec.Struct, frozen=True):
    """Pieces of the answer that came at once, in order; each one becomes an event of its own."""

    parts: Sequence[str]


class ThinkingPiece(msgspec.Struct, frozen=True):
    """The same for what the model thinks aloud."""

    parts: Sequence[str]


class CallPiece(msgspec.Struct, frozen=True):
    """One complete tool call, without an id: ``agent.model_call`` gives it one.

    ``input`` is an object. What the model sent instead of one is passed on as it is, text that is no JSON as that text:
    it fits no tool, so the call fails as a call with wrong arguments does.
    """

    name: str
    input: Any


class UsagePiece(msgspec.Struct, frozen=True):
    """Tokens of this model call; may come more than once and adds up."""

    input_tokens: int = 0
    output_tokens: int = 0


class StopPiece(msgspec.Struct, frozen=True):
    """The answer was cut off (``length``). An answer that ends by itself needs no such piece."""

    reason: str = "length"


Piece: TypeAlias = TextPiece | ThinkingPiece | CallPiece | UsagePiece | StopPiece


class ToolDefinition(msgspec.Struct, frozen=True, dict=True):
    """A tool as the model sees it; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]

    @cached_property
    def chars(self) -> int:
        """Its characters as JSON: what it takes of the context of each model call."""
        return len(msgspec.json.encode(self))


class ModelRequest(msgspec.Struct, frozen=True):
    """One model call. ``step_id`` is unique in the conversation.

    ``messages``: not to be kept, as it grows after the call; a list that is given again has only grown.
    ``answer``: options of the answer; where the model does not ``takes_answer_options``, they are in ``system_prompt``
    as text. ``purpose``: go on with the conversation, or summarise the text that is its only message.
    """

    step_id: str
    messages: Sequence[TranscriptMessage]
    system_prompt: str = ""
    thinking: str = "off"
    tools: Sequence[ToolDefinition] = ()
    purpose: Literal["answer", "summary"] = "answer"
    answer: AnswerOptions | None = None


class Model(ABC):
    """A model, ready to be called any number of times, one call at a time. Subclasses set ``name`` and ``provider``.

    ``needs_alternation``: it takes only conversations in which user and model take turns. ``keeps_cache``: it is faster
    or cheaper for a conversation whose beginning it has seen shortly before. ``takes_answer_options``: its server takes
    the form of the answer and the choice of tools as parameters.
    """

    provider: str
    name: str
    needs_alternation: bool = False
    keeps_cache: bool = False
    takes_answer_options: bool = False

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream one answer; the caller closes the generator. Raises ModelError."""

    async def aclose(self) -> None:  # noqa: B027 - most have nothing open
        """Release what is open between calls; the model may be called again."""
