"""Where an old conversation is cut, the prompt for its summary, and an estimate of its tokens. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agent.models.base import ToolDefinition
from wire.entries import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)

_CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1_600
_MESSAGE_TOKENS = 4


def estimate_tokens(messages: Iterable[TranscriptMessage]) -> int:
    """Tokens of the messages: a quarter of their characters, and a round number for each image."""
    return sum(_MESSAGE_TOKENS + sum(map(_block_chars, message.content)) for message in messages)


def estimate_overhead(system_prompt: str, tools: Sequence[ToolDefinition]) -> int:
    """Tokens of what is sent with every call."""
    return (len(system_prompt) + len(msgspec.json.encode(tools))) // _CHARS_PER_TOKEN


def _block_chars(block: ContentBlock) -> int:
    match block:
        case TextBlock(text) | ThinkingBlock(text):
            return len(text) // _CHARS_PER_TOKEN
        case ImageBlock():
            return _IMAGE_TOKENS
        case ToolUseBlock():
            return (len(block.name) + _json_chars(block.input)) // _CHARS_PER_TOKEN
        case ToolResultBlock():
            return _json_chars(block.content) // _CHARS_PER_TOKEN + _IMAGE_TOKENS * len(block.images)


def _json_chars(value: object) -> int:
    return len(value) if isinstance(value, str) else len(msgspec.json.encode(value))


KEPT_TURNS = 2
_TITLE = "[Summary of the conversation so far]"
_MESSAGE_CHARS = 4_000
_CALL_CHARS = 400

SUMMARY_SYSTEM_PROMPT = (
    "You summarise conversations between a user and a coding agent, so that the agent can go on from the summary "
    "alone. Keep: what the user wants, decisions and their reasons, what was done and found out, names of files, "
    "what is left to do. Write plainly and briefly; answer with the summary only."
)


def plan_cut(messages: Sequence[TranscriptMessage], keep_tokens: int | None = None) -> int | None:
    """The index of the first message that is kept as it is; None when nothing old is there to be summarised.

    The last two turns are kept. With ``keep_tokens`` less is kept where these are longer: the last turn, or the end of
    it; a cut never lies between a tool call and its result.
    """
    first = 1 if messages and messages[0].origin == "summary" else 0
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and message.origin in {"prompt", "follow_up"}
    ]
    if keep_tokens is None:
        return starts[-KEPT_TURNS] if len(starts) > KEPT_TURNS else None
    turns = starts[-KEPT_TURNS:]
    inside = [index for index in _inner_cuts(messages) if not turns or index > turns[-1]]
    cuts = [index for index in [*turns, *inside] if index > first]
    return next((cut for cut in cuts if estimate_tokens(messages[cut:]) <= keep_tokens), cuts[-1] if cuts else None)


def _inner_cuts(messages: Sequence[TranscriptMessage]) -> Iterator[int]:
    """Before each answer of the model at which no call is open."""
    pending: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "assistant" and not pending:
            yield index
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                pending.add(block.id)
            elif isinstance(block, ToolResultBlock):
                pending.discard(block.tool_use_id)


def summary_prompt(
    messages: Sequence[TranscriptMessage], instructions: str | None, most_chars: int
) -> TranscriptMessage:
    """What the model is asked; of a very long conversation, its end."""
    lines = [line for message in messages for line in _lines(message)]
    shown: list[str] = []
    for line in reversed(lines):
        most_chars -= len(line) + 1
        if most_chars < 0 and shown:
            shown.append(f"({len(lines) - len(shown)} older lines left out)")
            break
        shown.append(line)
    wish = f" ({instructions})" if instructions else ""
    return TranscriptMessage("user", [TextBlock("\n".join([f"Summarise this conversation{wish}:", *reversed(shown)]))])


def summary_of(text: str) -> str:
    """The summary as it stands in the conversation."""
    return f"{_TITLE}\n{text.strip()}"


def _lines(message: TranscriptMessage) -> Iterator[str]:
    """One line a block, but of an earlier summary its own lines."""
    if message.origin == "summary":
        yield from message.text.removeprefix(f"{_TITLE}\n").split("\n")
        return
    for block in message.content:
        match block:
            case TextBlock(text) if text.strip():
                yield f"{message.role}: {_one_line(text, _MESSAGE_CHARS)}"
            case ToolUseBlock(_, name, given):
                yield f"call: {name} {_one_line(msgspec.json.encode(given).decode(), _CALL_CHARS)}"
            case ToolResultBlock(_, content):
                yield f"result: {_one_line(msgspec.json.encode(content).decode(), _CALL_CHARS)}"
            case _:
                pass  # thinking and images are left out


def _one_line(text: str, most: int) -> str:
    flat = " ".join(text[: 4 * most].split())
    return flat if len(flat) <= most and len(text) <= 4 * most else f"{flat[:most]}..."
