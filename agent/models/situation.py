"""Where a conversation stands, as the scripted model reads it. Pure."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from wire.entries import ImageBlock, ToolResultBlock, TranscriptMessage

__all__ = ["Situation", "read_situation", "with_session"]

_SESSION = re.compile(r"\bsession ([a-z]+-[a-z0-9-]+)", re.IGNORECASE)


class Situation(NamedTuple):
    """``prompt``: the last one; ``turn``: how many there were.

    ``results``: what the tools have said since it, step by step; ``result``: what the last tool of all said;
    ``answered``: whether the prompt was; ``added``: texts that came into the turn and are not answered yet;
    ``before``: all user texts before the prompt; ``images`` in the prompt.
    """

    prompt: str
    turn: int
    results: list[str]
    result: str
    answered: bool
    added: list[str]
    before: list[str]
    images: int


def read_situation(messages: Sequence[TranscriptMessage]) -> Situation:
    """Read it; linear."""
    texts: list[str] = []
    results: list[str] = []
    last = TranscriptMessage("user", [])
    result = ""
    earlier = turn = answered = 0
    is_answered = False
    for message in messages:
        if message.role == "assistant":
            if message.calls:
                results.append("")
            else:
                answered, is_answered = len(texts), True
        elif message.origin == "tool":
            result = _said_by_tools(message) or result
            if results:
                results[-1] = result
        else:
            texts.append(message.text)
            if message.origin in {"prompt", "follow_up"}:
                last, earlier, turn, results, is_answered = message, len(texts) - 1, turn + 1, [], False
    images = sum(isinstance(block, ImageBlock) for block in last.content)
    added = texts[max(earlier + 1, answered) :]
    return Situation(last.text, turn, results, result, is_answered, added, texts[:earlier], images)


def with_session(given: Any, said: str) -> Any:
    """The input of a call; ``$SESSION`` in it stands for the background session that the last tool named last."""
    found = _SESSION.findall(said)
    if not found or not isinstance(given, dict):
        return given
    return {name: found[-1] if value == "$SESSION" else value for name, value in given.items()}


def _said_by_tools(message: TranscriptMessage) -> str:
    contents = [block.content for block in message.content if isinstance(block, ToolResultBlock)]
    said = contents[-1] if contents else ""
    if isinstance(said, dict):
        said = said.get("data") or said.get("error") or said
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()
