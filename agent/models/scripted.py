"""The scripted model: offline, deterministic, knows the conversation and follows directives in the prompt.

Plain answer: ``You said: "hello". (turn 3; before: "a", "b")``. The directives are listed in
``agent.models.directives`` and in ``agent --help``. It uses no clock but ``trio.sleep`` and no randomness.
"""

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
import trio

from agent.models.base import (
    CallPiece,
    ModelError,
    ModelRequest,
    Piece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from agent.models.directives import Script, parse_script
from wire.entries import ImageBlock, ToolResultBlock, TranscriptMessage

__all__ = ["Faults", "ScriptedModel"]

_BATCH = 512
_ECHO_CHARS = 2000
_BEFORE_CHARS = 80
_BEFORE_COUNT = 3
_SUMMARY_CHARS = 200
_SUMMARY_LINES = 200
_SESSION = re.compile(r"\bsession ([a-z]+-[a-z0-9-]+)", re.IGNORECASE)
_GARBAGE = (b"Warning: this is no message\n", b'{"event": "assistant_mess\n', b"\xff\xfe\x00 not even text\n")


class Faults(NamedTuple):
    """What the model does to the process on demand: print raw bytes on stdout, exit at once with a code."""

    print_raw: Callable[[bytes], None]
    exit_now: Callable[[int], None] = os._exit


class ScriptedModel:
    """See the module docstring."""

    provider = "scripted"
    needs_alternation = False
    keeps_cache = False

    def __init__(self, name: str, faults: Faults) -> None:
        self.name = name
        self._faults = faults
        self._refused = ("", 0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """One step of the script of the last prompt: its tool calls first, then the answer."""
        if request.purpose == "summary":
            yield TextPiece([await _summary(request.messages[-1].text)])
            return
        situation = _situation(request.messages)
        script = parse_script(situation.prompt)
        self._refuse(script, request)
        if situation.step < script.tool_steps:
            for number, call in enumerate(script.calls_of(situation.step)):
                given = _with_session(call.input, situation.result)
                yield CallPiece(f"{request.step_id}.{number}", call.tool, given)
            yield _usage(script, situation, 1)
            return
        if situation.step > script.tool_steps:  # the answer was given; somebody has added something since
            script = Script()
        if script.think:
            yield ThinkingPiece([f"Thinking at level {request.thinking}."])
        words = 0
        async with aclosing(self._answer(script, situation, request)) as answer:
            async for piece in answer:
                words += len(piece.parts)
                yield piece
        yield _usage(script, situation, words)
        if script.cut:
            yield StopPiece("length")

    def _refuse(self, script: Script, request: ModelRequest) -> None:
        """Fail as a server does that does not begin to answer; raises ModelError."""
        if script.overflow and all(message.origin != "summary" for message in request.messages):
            raise ModelError("the scripted model was asked to find the conversation too long", overflow=True)
        step_id, times = self._refused
        times = times if step_id == request.step_id else 0
        if times < script.transient:
            self._refused = (request.step_id, times + 1)
            message = f"the scripted model is overloaded ({times + 1} of {script.transient})"
            raise ModelError(message, transient=True, retry_after=script.retry_after)

    async def aclose(self) -> None:
        """It holds nothing open."""

    async def _answer(
        self, script: Script, situation: "_Situation", request: ModelRequest
    ) -> AsyncGenerator[TextPiece, None]:
        if script.pieces is None:
            await trio.sleep(script.delay)
            await self._do_harm(script)
            yield TextPiece(_words(self._text(script, situation, request)))
            return
        half = script.pieces // 2 if script.fault else 0
        for first, last in ((0, half), (half, script.pieces)):
            if first == half:
                await self._do_harm(script)
            for parts in _numbered_pieces(first, last, 1 if script.delay else _BATCH):
                await trio.sleep(script.delay)
                yield TextPiece(parts)

    def _text(self, script: Script, situation: "_Situation", request: ModelRequest) -> str:
        match script.answer:
            case "ECHO":
                return script.echo
            case "SYSTEM":
                return request.system_prompt
            case "WHOAMI":
                return f"model {self.provider}/{self.name}, thinking {request.thinking}"
            case "TELL":
                return situation.result
            case "RECALL":
                return f"Earlier you said: {msgspec.json.encode(situation.before).decode()}"
            case "plain":
                return _plain_answer(situation)

    async def _do_harm(self, script: Script) -> None:
        match script.fault:
            case "ERROR":
                raise ModelError("the scripted model was asked to fail")
            case "HANG":
                await trio.sleep_forever()
            case "CRASH":
                self._faults.exit_now(70 if script.fault_number is None else script.fault_number % 256)
            case "GARBAGE":
                count = 3 if script.fault_number is None else script.fault_number
                self._faults.print_raw(b"".join(_GARBAGE[number % 3] for number in range(count)))
            case None:
                pass


class _Situation(NamedTuple):
    """Where the conversation stands.

    ``prompt``: the last one; ``turn``: how many there were; ``step``: model calls since it; ``added``: texts that came
    into the turn and are not answered yet; ``before``: all user texts before the prompt; ``images`` in the prompt;
    ``result``: what the last tool said.
    """

    prompt: str
    turn: int
    step: int
    added: list[str]
    before: list[str]
    images: int
    result: str


def _situation(messages: Sequence[TranscriptMessage]) -> _Situation:
    texts: list[str] = []
    last = TranscriptMessage("user", [])
    result = ""
    earlier = turn = step = answered = 0
    for message in messages:
        if message.role == "assistant":
            step += 1
            answered = answered if message.calls else len(texts)
        elif message.origin == "tool":
            result = _said_by_tools(message) or result
        else:
            texts.append(message.text)
            if message.origin in {"prompt", "follow_up"}:
                last, earlier, step, turn = message, len(texts) - 1, 0, turn + 1
    images = sum(isinstance(block, ImageBlock) for block in last.content)
    added = texts[max(earlier + 1, answered) :]
    return _Situation(last.text, turn, step, added, texts[:earlier], images, result)


def _said_by_tools(message: TranscriptMessage) -> str:
    contents = [block.content for block in message.content if isinstance(block, ToolResultBlock)]
    said = contents[-1] if contents else ""
    if isinstance(said, dict):
        said = said.get("data") or said.get("error") or said
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()


def _with_session(given: Any, said: str) -> Any:
    """The input of a call; ``$SESSION`` in it stands for the background session that the last tool named."""
    found = _SESSION.search(said)
    if found is None or not isinstance(given, dict):
        return given
    return {name: found[1] if value == "$SESSION" else value for name, value in given.items()}


async def _summary(text: str) -> str:
    """A line of each line; words in the conversation make it fail or hang."""
    if "SUMMARY_HANG" in text:
        await trio.sleep_forever()
    if "SUMMARY_ERROR" in text:
        raise ModelError("the scripted model was asked to fail at the summary")
    lines = [_shorten(line, _SUMMARY_CHARS) for line in text.split("\n")[1:]]
    left_out = len(lines) - _SUMMARY_LINES
    return "\n".join([*([f"({left_out} older lines left out)"] if left_out > 0 else []), *lines[-_SUMMARY_LINES:]])


def _usage(script: Script, situation: _Situation, words: int) -> UsagePiece:
    return UsagePiece(*(script.usage or (len(situation.prompt) // 4, words)))


def _plain_answer(situation: _Situation) -> str:
    said = " and then ".join(f'"{_shorten(text, _ECHO_CHARS)}"' for text in [situation.prompt, *situation.added])
    before = ", ".join(f'"{_shorten(text, _BEFORE_CHARS)}"' for text in situation.before[-_BEFORE_COUNT:])
    images = f" with {situation.images} image(s)" if situation.images else ""
    return f"You said: {said}{images}. (turn {situation.turn}{f'; before: {before}' if before else ''})"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _words(text: str) -> list[str]:
    """Cut a text into pieces of a few words, so that even a short answer streams; joined they are the text."""
    size = max(16, len(text) // 64)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _numbered_pieces(first: int, last: int, batch: int) -> Iterator[list[str]]:
    for start in range(first, last, batch):
        yield [f"piece {number} " for number in range(start, min(start + batch, last))]
