"""A model's answer as it comes in: said on at once, and complete in the end."""

import uuid
from collections.abc import Callable

from agent.models.base import CallPiece, Piece, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from agent.output import Output
from wire.entries import Block, TextBlock, ThinkingBlock, ToolUseBlock, TranscriptMessage
from wire.messages import TokenUsage

__all__ = ["Reply"]


class Reply:
    """Takes pieces; ``count`` is told the tokens."""

    def __init__(self, output: Output, run_id: str, count: Callable[[TokenUsage], None]) -> None:
        self._output = output
        self._run_id = run_id
        self._count = count
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolUseBlock] = []
        self._stop_reason = "stop"

    @property
    def was_seen(self) -> bool:
        """Whether a reader has seen something of it."""
        return bool(self._text or self._thinking)

    def take(self, piece: Piece) -> None:
        """Take the next piece."""
        match piece:
            case TextPiece(parts):
                self._text.append("".join(parts))  # one string a batch: a long answer is not a million objects
                self._output.pieces("assistant_message", parts, self._run_id)
            case ThinkingPiece(parts):
                self._thinking.append("".join(parts))
                self._output.pieces("thinking", parts, self._run_id)
            case CallPiece(name, given):
                self._calls.append(ToolUseBlock(_new_id(), name, given))
            case UsagePiece(tokens_in, tokens_out):
                self._count(TokenUsage(tokens_in, tokens_out))
            case StopPiece(reason):
                self._stop_reason = reason

    def message(self) -> TranscriptMessage:
        """It, complete."""
        return TranscriptMessage("assistant", [*self._said(), *self._calls], stop_reason=self._stop_reason)

    def broken_off(self, stop_reason: str) -> TranscriptMessage:
        """What was seen of it; calls of an answer that was cut off were never meant to run."""
        return TranscriptMessage("assistant", self._said(), stop_reason=stop_reason)

    def _said(self) -> list[Block]:
        blocks: list[Block] = []
        if self._thinking:
            blocks.append(ThinkingBlock("".join(self._thinking)))
        if self._text:
            blocks.append(TextBlock("".join(self._text)))
        return blocks


def _new_id() -> str:
    """An id that no other call has, in any conversation: people approve a call by its id."""
    return f"c{uuid.uuid4().hex[:12]}"
