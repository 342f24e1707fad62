"""Every tool call has exactly one result, right after the message that makes it, in call order.

Providers insist on it. A transcript keeps that by itself, but not one that was damaged or written by others.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from agent.results import failure
from wire.entries import Block, ToolResultBlock, ToolUseBlock, TranscriptMessage

__all__ = ["paired"]


def paired(messages: Sequence[TranscriptMessage]) -> list[TranscriptMessage]:
    """The messages with all results in their places.

    A call without a result gets one that says so; results without a call, and second ones, are dropped; so is the
    second call of one id in one message. Idempotent.
    """
    shelf = _Shelf(messages)
    placed: list[TranscriptMessage] = []
    for index, message in enumerate(messages):
        placed += _with_results(message, index, shelf) if message.role == "assistant" else _without_results(message)
    return placed


class _Shelf:
    """All results of a conversation, to be taken by call; an id may be used again, by a later message."""

    def __init__(self, messages: Sequence[TranscriptMessage]) -> None:
        self._results: dict[str, list[tuple[int, ToolResultBlock]]] = {}
        self._calls: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    self._results.setdefault(block.tool_use_id, []).append((index, block))
                elif isinstance(block, ToolUseBlock):
                    self._calls.setdefault(block.id, []).append(index)

    def take(self, call: ToolUseBlock, index: int) -> ToolResultBlock:
        """The first result after the call's message, unless the id was used again before."""
        until = next((again for again in self._calls[call.id] if again > index), None)
        found = self._results.get(call.id, ())
        before = takewhile(lambda result: until is None or result[0] < until, found)
        return next((block for place, block in before if place > index), _missing(call))


def _with_results(message: TranscriptMessage, index: int, shelf: _Shelf) -> Iterator[TranscriptMessage]:
    results: dict[str, Block] = {}
    kept: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            if block.id in results:
                continue
            results[block.id] = shelf.take(block, index)
        kept.append(block)
    yield message if len(kept) == len(message.content) else msgspec.structs.replace(message, content=kept)
    if results:
        yield TranscriptMessage("user", list(results.values()), origin="tool")


def _without_results(message: TranscriptMessage) -> Iterator[TranscriptMessage]:
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    if len(rest) == len(message.content):
        yield message
    elif rest:
        yield msgspec.structs.replace(message, content=rest)


def _missing(call: ToolUseBlock) -> ToolResultBlock:
    words = failure(
        f"The result of {call.name} is not there.",
        "runtime",
        recommendations=["Check for side effects before calling it again: it may have run."],
    )
    return ToolResultBlock(call.id, words, is_error=True)
