"""How long a conversation is for a model, about: nobody here knows its tokenizer."""

from collections.abc import Iterable, Sequence

import msgspec

from agent.models.base import ToolDefinition
from wire.entries import Block, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

__all__ = ["tokens_of", "tokens_of_frame"]

_CHARS_A_TOKEN = 4
_IMAGE = 1_600
_MESSAGE = 4


def tokens_of(messages: Iterable[TranscriptMessage]) -> int:
    """Tokens of the messages: a quarter of their characters, and a round number for each image."""
    return sum(_MESSAGE + sum(map(_of_block, message.content)) for message in messages)


def tokens_of_frame(system_prompt: str, tools: Sequence[ToolDefinition]) -> int:
    """Tokens of what is sent with every call."""
    return (len(system_prompt) + len(msgspec.json.encode(tools))) // _CHARS_A_TOKEN


def _of_block(block: Block) -> int:
    match block:
        case TextBlock(text) | ThinkingBlock(text):
            return len(text) // _CHARS_A_TOKEN
        case ImageBlock():
            return _IMAGE
        case ToolUseBlock():
            return (len(block.name) + _of_json(block.input)) // _CHARS_A_TOKEN
        case ToolResultBlock():
            return _of_json(block.content) // _CHARS_A_TOKEN + _IMAGE * len(block.images)


def _of_json(value: object) -> int:
    return len(value) if isinstance(value, str) else len(msgspec.json.encode(value))
