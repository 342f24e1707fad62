"""The scripted model: offline and deterministic; it knows the conversation and follows directives in the prompt.

Plain answer: ``You said: "hello". (turn 3; before: "a", "b")``. Directives: ``agent.models.directives``. It uses no
clock but ``trio.sleep`` and no randomness.
"""

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
import trio

from agent.models.base import (
    CallPiece,
    Model,
    ModelError,
    ModelRequest,
    Piece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from agent.models.directives import AnswerMode, Script, parse_script
from wire.entries import ImageBlock, ToolResultBlock, TranscriptMessage

_SESSION = re.compile(r"\bsession ([a-z]+-[a-z0-9-]+)", re.IGNORECASE)


class ConversationState(NamedTuple):
    """The last ``prompt``, number ``turn``: ``texts[position]`` of all user texts; ``images`` in it.

    ``results`` of tools since it, step by step; ``result``: the last of all; ``answered``: whether the prompt was;
    ``added``: texts that came into the turn and are not answered yet.
    """

    prompt: str
    turn: int
    results: list[str]
    result: str
    answered: bool
    added: list[str]
    texts: Sequence[str]
    position: int
    images: int

    def before(self, most: int | None = None) -> Sequence[str]:
        """The user texts before the prompt, or the last ``most`` of them."""
        return self.texts[0 if most is None else max(0, self.position - most) : self.position]


class ConversationReader:
    """Reads conversations; of a list that is given again, and has only grown since, the new messages."""

    def __init__(self) -> None:
        self._reset(())

    def _reset(self, source: Sequence[TranscriptMessage]) -> None:
        self._source = source
        self._seen = 0
        self._texts: list[str] = []
        self._results: list[str] = []
        self._last = TranscriptMessage("user", [])
        self._result = ""
        self._earlier = self._turn = self._answered = 0
        self._is_answered = False

    def read(self, messages: Sequence[TranscriptMessage]) -> ConversationState:
        """Where this conversation stands."""
        if messages is not self._source:
            self._reset(messages)
        for message in messages[self._seen :]:
            self._add(message)
        self._seen = len(messages)
        last, texts = self._last, self._texts
        return ConversationState(
            prompt=last.text,
            turn=self._turn,
            results=[*self._results],
            result=self._result,
            answered=self._is_answered,
            added=texts[max(self._earlier + 1, self._answered) :],
            texts=texts,
            position=self._earlier,
            images=sum([isinstance(block, ImageBlock) for block in last.content]),
        )

    def _add(self, message: TranscriptMessage) -> None:
        if message.role == "assistant":
            if message.calls:
                self._results.append("")
            else:
                self._answered, self._is_answered = len(self._texts), True
        elif message.origin == "tool":
            self._result = _tool_text(message) or self._result
            if self._results:
                self._results[-1] = self._result
        else:
            self._texts.append(message.text)
            if message.origin in {"prompt", "follow_up"}:
                self._last, self._earlier, self._turn = message, len(self._texts) - 1, self._turn + 1
                self._results, self._is_answered = [], False


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def with_session_id(given: Any, said: str) -> Any:
    """The input of a call; ``$SESSION`` in it stands for the background session that the last tool named last."""
    found = _SESSION.findall(said)
    if not found or not isinstance(given, dict):
        return given
    return {name: found[-1] if value == "$SESSION" else value for name, value in given.items()}


def _tool_text(message: TranscriptMessage) -> str:
    contents = [block.content for block in message.content if isinstance(block, ToolResultBlock)]
    said = contents[-1] if contents else ""
    if isinstance(said, dict):
        said = said.get("data") or said.get("error") or said
    return said if isinstance(said, str) else _json(said)


_PROVIDER = "scripted"
_SUMMARY_LINES = 200
_HAS_ENDED = re.compile(r"\(Session \S+ has ended: (.+)\.\)\Z")
_GARBAGE = (b"Warning: this is no message\n", b'{"event": "assistant_mess\n', b"\xff\xfe\x00 not even text\n")


class ProcessFaults(NamedTuple):
    """What the model does to the process on demand: print raw bytes on stdout, exit at once with a code."""

    print_raw: Callable[[bytes], None]
    exit_now: Callable[[int], None] = os._exit


class ScriptedModel(Model):
    """Follows the directives of the last prompt."""

    provider = _PROVIDER

    def __init__(self, name: str, faults: ProcessFaults) -> None:
        self.name = name
        self._faults = faults
        self._failed_attempts = ("", 0)
        self._reader = ConversationReader()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """One step of the script of the last prompt: its tool calls first, then the answer."""
        if request.purpose == "summary":
            yield TextPiece([await _summary(request.messages[-1].text)])
            return
        state = self._reader.read(request.messages)
        script = parse_script(state.prompt)
        self._fail_if_scripted(script, request)
        if state.answered:  # a steer or a result followed the answer
            script = Script()
        calls = script.next_calls(state.results)
        if calls:
            for call in calls:
                yield CallPiece(call.tool, with_session_id(call.input, state.result))
            yield _usage(script, state, 1)
            return
        if script.think:
            yield ThinkingPiece([f"Thinking at level {request.thinking}."])
        if script.pieces is None:
            parts = await self._answer(script, state, request)
            yield TextPiece(parts)
            yield _usage(script, state, len(parts))
        else:
            async with aclosing(self._stream_numbered(script, script.pieces)) as pieces:
                async for piece in pieces:
                    yield piece
            yield _usage(script, state, script.pieces)
        if script.cut:
            yield StopPiece("length")

    def _fail_if_scripted(self, script: Script, request: ModelRequest) -> None:
        """Fail as a server does that does not begin to answer; raises ModelError."""
        if script.overflow and all(message.origin != "summary" for message in request.messages):
            raise ModelError("the scripted model was asked to find the conversation too long", overflow=True)
        step_id, times = self._failed_attempts
        times = times if step_id == request.step_id else 0
        if times < script.transient:
            self._failed_attempts = (request.step_id, times + 1)
            message = f"the scripted model is overloaded ({times + 1} of {script.transient})"
            raise ModelError(message, transient=True, retry_after=script.retry_after)

    async def _answer(self, script: Script, state: ConversationState, request: ModelRequest) -> list[str]:
        """An answer that is not of numbered pieces."""
        if script.delay:
            await trio.sleep(script.delay)
        await self._inject_fault(script)
        return _stream_pieces(_ANSWERS[script.answer](script, state, request, self.name))

    async def _stream_numbered(self, script: Script, count: int) -> AsyncGenerator[TextPiece, None]:
        half = count // 2 if script.fault else 0
        for first, last in ((0, half), (half, count)):
            if first == half:
                await self._inject_fault(script)
            for parts in _numbered_pieces(first, last, 1 if script.delay else 512):
                await trio.sleep(script.delay)
                yield TextPiece(parts)

    async def _inject_fault(self, script: Script) -> None:
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


async def _summary(text: str) -> str:
    """The lines of the conversation, shortened; directives in it make the summary fail or hang."""
    if "SUMMARY_HANG" in text:
        await trio.sleep_forever()
    if "SUMMARY_ERROR" in text:
        raise ModelError("the scripted model was asked to fail at the summary")
    lines = [_shorten(line, 200) for line in text.split("\n")[1:]]
    left_out = len(lines) - _SUMMARY_LINES
    return "\n".join([*([f"({left_out} older lines left out)"] if left_out > 0 else []), *lines[-_SUMMARY_LINES:]])


def _usage(script: Script, state: ConversationState, words: int) -> UsagePiece:
    return UsagePiece(*(script.usage or (len(state.prompt) // 4, words)))


def _outcome(results: Sequence[str]) -> str:
    """How the command that was followed up came out, with the last lines of all that its polls brought to light."""
    last = results[-1].rpartition("\n")[2]
    ended = _HAS_ENDED.fullmatch(last)
    if ended is None:  # it never went to the background, or still is there
        return f"The last that was said of it:\n{results[-1]}"
    said = [poll.rpartition("\n\n")[0] for poll in results[1:]]
    lines = "\n".join(text for text in said if text != "(no new output)").splitlines()
    shown = "\n".join(lines[-20:])
    return f"It has ended: {ended[1]}." + (f" The last it said:\n{shown}" if shown else " It said nothing.")


def _plain_answer(state: ConversationState) -> str:
    said = " and then ".join(f'"{_shorten(text, 2000)}"' for text in [state.prompt, *state.added])
    before = ", ".join(f'"{_shorten(text, 80)}"' for text in state.before(3))
    images = f" with {state.images} image(s)" if state.images else ""
    return f"You said: {said}{images}. (turn {state.turn}{f'; before: {before}' if before else ''})"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _stream_pieces(text: str) -> list[str]:
    """Cut a text into pieces of a few words, so that even a short answer streams; joined they are the text."""
    size = max(16, len(text) // 64)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _numbered_pieces(first: int, last: int, batch: int) -> Iterator[list[str]]:
    for start in range(first, last, batch):
        yield [f"piece {number} " for number in range(start, min(start + batch, last))]


_ANSWERS: Mapping[AnswerMode, Callable[[Script, ConversationState, ModelRequest, str], str]] = {
    "plain": lambda _script, state, _request, _name: _plain_answer(state),
    "ECHO": lambda script, _situation, _request, _name: script.echo,
    "SYSTEM": lambda _script, _situation, request, _name: request.system_prompt,
    "WHOAMI": lambda _script, _situation, request, name: f"model {_PROVIDER}/{name}, thinking {request.thinking}",
    "TELL": lambda _script, state, _request, _name: state.result,
    "OUTCOME": lambda _script, state, _request, _name: _outcome(state.results),
    "RECALL": lambda _script, state, _request, _name: f"Earlier you said: {_json(state.before())}",
}
"""What is said where no text of numbered pieces is asked for; the last argument is the model's name."""
