"""What a model is to the agent: an async iterator of typed pieces. A new model is one file beside this one."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from wire.entries import TranscriptMessage

__all__ = [
    "CallPiece",
    "Model",
    "ModelError",
    "ModelRequest",
    "Piece",
    "StopPiece",
    "TextPiece",
    "ThinkingPiece",
    "ToolDefinition",
    "UsagePiece",
]


class ModelError(Exception):
    """The model failed; the message is for the user. ``transient``: the same call may succeed later."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class TextPiece(msgspec.Struct, frozen=True):
    """Pieces of the answer that came at once, in order; each one becomes an event of its own."""

    parts: Sequence[str]


class ThinkingPiece(msgspec.Struct, frozen=True):
    """The same for what the model thinks aloud."""

    parts: Sequence[str]


class CallPiece(msgspec.Struct, frozen=True):
    """One complete tool call."""

    id: str
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


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool as the model sees it; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    """One model call. ``step_id`` is unique in the conversation: a model that must invent call ids builds on it."""

    step_id: str
    messages: Sequence[TranscriptMessage]
    system_prompt: str = ""
    thinking: str = "off"
    tools: Sequence[ToolDefinition] = ()


class Model(Protocol):
    """A model, ready to be called any number of times, one call at a time."""

    @property
    def provider(self) -> str:
        """Which family it is of."""
        ...

    @property
    def name(self) -> str:
        """Which one it is."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Answer; raises ModelError. The caller closes the generator."""
        ...
