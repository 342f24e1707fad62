"""Completion and chunk bodies. Pure.

Answers in OpenAI's shape: a completion, or the messages of a stream. Pure.

What an agent says in its turn, read from pushed events: its text, with a gap where it did something. Pure.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from doors.openai.errors import error_body
from doors.openai.session_ref import Place
from errors import PoolError
from gateway.runs.run import DoneReason, RunOutcome
from wire.messages import TokenUsage

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"
_FINISH = {DoneReason.TOOL_CALLS: "tool_calls", DoneReason.LENGTH: "length"}
_BREAKS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""What some clients take for the end of a line."""
_encode = msgspec.json.Encoder().encode

Json = dict[str, Any]


def completion(outcome: RunOutcome, place: Place, *, model: str, created: int) -> Json:
    """The whole answer."""
    calls = calls_of(outcome.calls, place)
    said: Json = {"role": "assistant", "content": outcome.text if outcome.text or not calls else None, "refusal": None}
    if calls:
        said["tool_calls"] = calls
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": finish_of(outcome)}
    head = {"id": f"chatcmpl-{place.run}", "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": [choice], "usage": _usage(outcome.usage)}


def finish_of(outcome: RunOutcome) -> str:
    """Why it ends."""
    return _FINISH.get(outcome.reason, "stop")


class Chunks:
    """Makes the messages of one stream."""

    def __init__(self, place: Place, *, model: str, created: int, includes_usage: bool) -> None:
        self._place = place
        self._head: Json = {
            "id": f"chatcmpl-{place.run}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._includes_usage = includes_usage
        self._has_begun = False

    def text(self, text: str) -> bytes:
        """More of the answer."""
        return self._chunk({"content": text})

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        return message(error_body(error))

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        calls = [{"index": index, **call} for index, call in enumerate(calls_of(outcome.calls, self._place))]
        messages = [self._chunk({"tool_calls": calls})] if calls else []
        messages.append(self._chunk({}, finish_of(outcome)))
        if self._includes_usage:
            messages.append(message(_encode({**self._head, "choices": [], "usage": _usage(outcome.usage)})))
        return b"".join([*messages, DONE])

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._includes_usage else {}
        return message(_encode({**self._head, "choices": [choice], **usage}))


def message(data: bytes) -> bytes:
    """JSON as a message of the stream."""
    return b"data: %b\n\n" % in_one_line(data)


def in_one_line(data: bytes) -> bytes:
    """JSON with the characters escaped that a client may take for the end of a line."""
    for raw, escaped in _BREAKS:
        data = data.replace(raw, escaped)
    return data


def calls_of(calls: Sequence[Json], place: Place) -> list[Json]:
    """The calls in OpenAI's shape, under the ids that the client sees."""
    return [
        {
            "id": place.call_out(call["id"]),
            "type": "function",
            "function": {"name": call["name"], "arguments": _encode(call["input"]).decode()},
        }
        for call in calls
    ]


def _usage(usage: TokenUsage | None) -> Json:
    used = usage or TokenUsage()
    total = used.input_tokens + used.output_tokens
    return {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens, "total_tokens": total}


_TEXTS = frozenset({"text_chunk", "text_snapshot"})
_GAPS = frozenset({"tool:start", "compaction:end"})
"""What was said before it is a paragraph of its own."""
_GAP = "\n\n"


class _Text(msgspec.Struct):
    delta: str = ""
    text: str = ""


class _Event(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Push(msgspec.Struct):
    events: list[_Event]


_read_push = msgspec.json.Decoder(_Push)
_read_text = msgspec.json.Decoder(_Text)


class Words:
    """One for each run."""

    def __init__(self) -> None:
        self.has_spoken = False
        self._gap = ""

    def take(self, data: bytes) -> str:
        """What is said in the events of a push; mostly nothing, or a lot at once."""
        said: list[str] = []
        for event in _read_push.decode(data).events:
            if event.type in _TEXTS:
                said += self._say(_read_text.decode(event.data))
            elif event.type in _GAPS and self.has_spoken:
                self._gap = _GAP
        return "".join(said)

    def _say(self, piece: _Text) -> tuple[str, ...]:
        text = piece.delta or piece.text
        if not text:
            return ()
        gap, self._gap, self.has_spoken = self._gap, "", True
        return gap, text
