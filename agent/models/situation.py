"""Where a conversation stands, as the scripted model reads it. Pure."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from wire.entries import ImageBlock, ToolResultBlock, TranscriptMessage

__all__ = ["Situation", "SituationReader", "with_session"]

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


class SituationReader:
    """Reads conversations; of one that has grown since it was read last, the new messages (and compares the others)."""

    def __init__(self) -> None:
        self._forget()

    def read(self, messages: Sequence[TranscriptMessage]) -> Situation:
        """Where this conversation stands."""
        if messages[: len(self._read)] != self._read:
            self._forget()
        for message in messages[len(self._read) :]:
            self._take(message)
        last, texts = self._last, self._texts
        return Situation(
            prompt=last.text,
            turn=self._turn,
            results=[*self._results],
            result=self._result,
            answered=self._is_answered,
            added=texts[max(self._earlier + 1, self._answered) :],
            before=texts[: self._earlier],
            images=sum(isinstance(block, ImageBlock) for block in last.content),
        )

    def _forget(self) -> None:
        self._read: list[TranscriptMessage] = []
        self._texts: list[str] = []
        self._results: list[str] = []
        self._last = TranscriptMessage("user", [])
        self._result = ""
        self._earlier = self._turn = self._answered = 0
        self._is_answered = False

    def _take(self, message: TranscriptMessage) -> None:
        self._read.append(message)
        if message.role == "assistant":
            if message.calls:
                self._results.append("")
            else:
                self._answered, self._is_answered = len(self._texts), True
        elif message.origin == "tool":
            self._result = _said_by_tools(message) or self._result
            if self._results:
                self._results[-1] = self._result
        else:
            self._texts.append(message.text)
            if message.origin in {"prompt", "follow_up"}:
                self._last, self._earlier, self._turn = message, len(self._texts) - 1, self._turn + 1
                self._results, self._is_answered = [], False


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
