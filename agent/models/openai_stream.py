"""Parses the answer of a chat-completions server, sans-IO: bytes of the body in, pieces of the answer out."""

import re
from typing import Any, TypeAlias

import msgspec

from agent.models.base import CallPiece, ModelError, Piece, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from agent.models.openai_errors import error_in_stream, tidy
from wire.sse import EventTooLong, SseReader

MAX_CALLS = 128
_MAX_ID_CHARS = 200
_MAX_NAME_CHARS = 200
"""A name is part of every event of its call; no real one is this long."""


class FunctionDelta(msgspec.Struct, frozen=True):
    """What is new of a call's function; some servers send the arguments as an object at once."""

    name: str | None = None
    arguments: str | dict[str, object] | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """One piece of one call, identified by ``index`` where the server sends one; the id often comes only once."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class _PartialCall(msgspec.Struct, eq=False):
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    whole: dict[str, object] | None = None


def parse_arguments(text: str) -> object:
    """The input that a call's arguments stand for: no arguments are none, text that is no JSON stays that text."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


class CallAssembler:
    """The calls of one answer, in the order in which they began. Raises ModelError when there are too many."""

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self.chars = 0

    def feed(self, delta: CallDelta) -> None:
        """Add one piece to the call it belongs to."""
        function = delta.function or FunctionDelta()
        call = self._call_of(delta, begins=bool(function.name))
        call.id = call.id or (delta.id or "")[:_MAX_ID_CHARS]
        call.name = call.name or (function.name or "")[:_MAX_NAME_CHARS]
        match function.arguments:
            case str(text):
                call.arguments.append(text)
                self.chars += len(text)
            case dict(whole):
                call.whole = whole
                self.chars += len(msgspec.json.encode(whole))
            case None:
                pass

    def _call_of(self, delta: CallDelta, *, begins: bool) -> _PartialCall:
        known = self._find_call(delta)
        # Servers that give all calls one index distinguish them by an id, sent together with the name.
        other = known is not None and delta.id and known.id and delta.id != known.id and begins
        if known is not None and not other:
            return known
        if len(self._calls) == MAX_CALLS:
            raise ModelError(f"the model made more than {MAX_CALLS} tool calls at once")
        call = _PartialCall()
        self._calls.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        return call

    def _find_call(self, delta: CallDelta) -> _PartialCall | None:
        if delta.index is not None:
            return self._by_index.get(delta.index)
        if delta.id:
            return next((call for call in self._calls if call.id == delta.id), None)
        begins_another = delta.function is not None and delta.function.name
        return self._calls[-1] if self._calls and not begins_another else None

    def pieces(self, *, cut: bool) -> list[CallPiece]:
        """All calls, complete.

        ``cut``: the answer ended at its length, so a last call without arguments has lost them: it stays invalid.
        """
        pieces: list[CallPiece] = []
        for call in self._calls:
            text = "".join(call.arguments)
            lost = cut and call is self._calls[-1] and call.whole is None and not text.strip()
            given = text if lost else parse_arguments(text)
            pieces.append(CallPiece(call.name, given if call.whole is None else call.whole))
        return pieces


_MAX_TOKENS = 2**53
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Every escape of a JSON string; the group is half a surrogate pair without its other half."""


_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class AnswerLimits(msgspec.Struct, frozen=True):
    """What one answer may hold: bytes of one event (or of a whole body), characters of text, thought and arguments."""

    event_bytes: int = 16 * 1024 * 1024
    answer_chars: int = 16 * 1024 * 1024


class _Delta(msgspec.Struct, frozen=True, gc=False):
    """What is new. Text comes as a string or as parts; what the model thinks under one of two names."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None


_EMPTY_DELTA = _Delta()


class _Choice(msgspec.Struct, frozen=True, gc=False):
    """``delta`` in a stream, ``message`` in an answer that came as a whole."""

    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct, frozen=True, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _UnreadableChunk(ModelError):
    """The server sent something that is no chunk of an answer. Not transient: another try would get the same."""


_TextKind: TypeAlias = type[TextPiece] | type[ThinkingPiece]


class _AnswerAssembler:
    """What chunks add up to. Pieces of the same kind that come together go on together."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._calls = CallAssembler()
        self._usage: _Usage | None = None
        self._chars = 0
        self._kind: _TextKind = TextPiece
        self._parts: list[str] = []
        self._pieces: list[Piece] = []
        self.finish_reason: str | None = None

    def feed(self, data: bytes) -> None:
        """Add one chunk of JSON. Raises ModelError."""
        chunk = self._decode(data)
        if chunk.error is not None:
            raise error_in_stream(chunk.error)
        self._usage = chunk.usage or self._usage  # servers that count as they go send the sum so far each time
        if chunk.choices:
            choice = chunk.choices[0]
            self._add_delta(choice.delta or choice.message or _EMPTY_DELTA)
            self.finish_reason = choice.finish_reason or self.finish_reason

    def _decode(self, data: bytes) -> _Chunk:
        try:
            return self._decoder.decode(data)
        except _DECODE_ERRORS as exc:
            mended = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], data)
            if mended == data:
                raise _unreadable_error(data, exc) from exc
        try:  # a server that cuts text between the halves of a character
            return self._decoder.decode(mended)
        except _DECODE_ERRORS as exc:
            raise _unreadable_error(data, exc) from exc

    def _add_delta(self, delta: _Delta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._add_text(ThinkingPiece, thought)
        if isinstance(delta.content, str):
            self._add_text(TextPiece, delta.content)
        elif delta.content is not None:
            self._add_parts(delta.content)
        if delta.refusal:
            self._add_text(TextPiece, delta.refusal)
        for call in delta.tool_calls or ():
            self._calls.feed(call)
        if self._chars + self._calls.chars > self._limits.answer_chars:
            raise ModelError(f"the model's answer is longer than {self._limits.answer_chars} characters")

    def _add_parts(self, parts: list[Any]) -> None:
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    self._add_text(TextPiece, text)
                case {"type": "thinking", "thinking": [*thoughts]}:
                    for thought in thoughts:
                        if isinstance(thought, dict) and isinstance(thought.get("text"), str):
                            self._add_text(ThinkingPiece, thought["text"])
                case _:
                    pass  # a reference, a sound: nothing that could be shown

    def _add_text(self, kind: _TextKind, text: str) -> None:
        if not text:
            return
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._parts.append(text)
        self._chars += len(text)

    def _flush(self) -> None:
        if self._parts:
            self._pieces.append(self._kind(self._parts))
            self._parts = []

    def drain(self) -> list[Piece]:
        """What came since the last time."""
        self._flush()
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> list[Piece]:
        """What stands at the end of a complete answer. Raises ModelError when a content filter ended it."""
        if self.finish_reason == "content_filter":
            raise ModelError("the model server's content filter ended the answer")
        cut = self.finish_reason == "length"
        pieces: list[Piece] = [*self.drain(), *self._calls.pieces(cut=cut)]
        if self._usage is not None:
            pieces.append(
                UsagePiece(_clamp_tokens(self._usage.prompt_tokens), _clamp_tokens(self._usage.completion_tokens))
            )
        if cut:
            pieces.append(StopPiece("length"))
        return pieces


class StreamedAnswer:
    """An answer as server-sent events."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._answer = _AnswerAssembler(limits)
        self._events = SseReader(limits.event_bytes)
        self.done = False

    @property
    def complete(self) -> bool:
        """The model has ended its answer; what still comes is the count of its tokens."""
        return self.done or self._answer.finish_reason is not None

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take the next bytes; the pieces they completed. Raises ModelError."""
        try:
            self._feed_events(self._events.feed(chunk))
        except EventTooLong as exc:
            raise ModelError(f"the model server sent too much at once: {exc}") from exc
        return self._answer.drain()

    def close(self) -> list[Piece]:
        """The body has ended, or ``done`` is true: the last pieces. Raises ModelError when the answer is not whole."""
        try:
            if not self.done:
                self._feed_events(self._events.close())
        except _UnreadableChunk:  # the last event is cut off
            raise _truncated_error() from None
        if not self.complete:
            raise _truncated_error()
        return self._answer.finish()

    def _feed_events(self, events: list[bytes]) -> None:
        for data in events:
            if self.done:
                return
            if data == b"[DONE]":
                self.done = True
            elif not data.isspace():
                self._answer.feed(data)


class WholeAnswer:
    """The same for a body that is one JSON object: what servers send that cannot stream."""

    done = complete = False

    def __init__(self, limits: AnswerLimits) -> None:
        self._answer = _AnswerAssembler(limits)
        self._limit = limits.event_bytes
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take the next bytes. Raises ModelError when they are too many."""
        self._body += chunk
        if len(self._body) > self._limit:
            raise ModelError(f"the model server sent too much at once: more than {self._limit} bytes")
        return []

    def close(self) -> list[Piece]:
        """The body has ended: all pieces. Raises ModelError."""
        self._answer.feed(bytes(self._body))
        return self._answer.finish()


def _truncated_error() -> ModelError:
    return ModelError("the model server ended the stream in the middle of the answer", transient=True)


def _unreadable_error(data: bytes, exc: Exception) -> ModelError:
    start = tidy(data[:400].decode(errors="replace"), 100)
    return _UnreadableChunk(f"the model server sent what cannot be read ({tidy(str(exc), 100)}): {start}")


def _clamp_tokens(count: int | None) -> int:
    return min(max(count or 0, 0), _MAX_TOKENS)
