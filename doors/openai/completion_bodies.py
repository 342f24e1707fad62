"""Chat completions in OpenAI's shape: the whole answer, or the messages of a stream. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from doors.openai.errors import error_body
from doors.openai.session_ref import SessionRef
from errors import PoolError
from gateway.runs.run import DoneReason, RunOutcome
from wire.events import ANSWER_TEXT_EVENTS
from wire.framing import escape_line_separators
from wire.messages import TokenUsage
from wire.run_text import PARAGRAPH_EVENTS, TextAssembler, joined_text

DONE = b"data: [DONE]\n\n"
KEEPALIVE_COMMENT = b": waiting\n\n"
_FINISH_REASONS = {DoneReason.TOOL_CALLS: "tool_calls", DoneReason.LENGTH: "length"}
_encode = msgspec.json.Encoder().encode

Json = dict[str, Any]


def completion_body(outcome: RunOutcome, place: SessionRef, *, model: str, created: int) -> Json:
    """The whole answer."""
    calls = client_calls(outcome.calls, place)
    said: Json = {"role": "assistant", "content": outcome.text if outcome.text or not calls else None, "refusal": None}
    if calls:
        said["tool_calls"] = calls
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": _finish_reason(outcome)}
    head = {"id": f"chatcmpl-{place.run}", "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": [choice], "usage": _usage(outcome.usage)}


def _finish_reason(outcome: RunOutcome) -> str:
    return _FINISH_REASONS.get(outcome.reason, "stop")


class Chunks:
    """Makes the messages of one stream."""

    def __init__(self, place: SessionRef, *, model: str, created: int, includes_usage: bool) -> None:
        self._session_ref = place
        head = {"id": f"chatcmpl-{place.run}", "object": "chat.completion.chunk"}
        self._head: Json = {**head, "created": created, "model": model}
        self._includes_usage = includes_usage
        self._has_begun = False

    def text(self, text: str) -> bytes:
        """More of the answer."""
        return self._chunk({"content": text})

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        return sse_message(error_body(error))

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        calls = [{"index": index, **call} for index, call in enumerate(client_calls(outcome.calls, self._session_ref))]
        messages = [self._chunk({"tool_calls": calls})] if calls else []
        messages.append(self._chunk({}, _finish_reason(outcome)))
        if self._includes_usage:
            messages.append(sse_message(_encode({**self._head, "choices": [], "usage": _usage(outcome.usage)})))
        return b"".join([*messages, DONE])

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._includes_usage else {}
        return sse_message(_encode({**self._head, "choices": [choice], **usage}))


def sse_message(data: bytes) -> bytes:
    """JSON as a message of the stream."""
    return b"data: %b\n\n" % escape_line_separators(data)


def client_calls(calls: Sequence[Json], place: SessionRef) -> list[Json]:
    """The calls in OpenAI's shape, under the ids that the client sees."""
    return [
        {
            "id": place.to_client(call["id"]),
            "type": "function",
            "function": {"name": call["name"], "arguments": _encode(call["input"]).decode()},
        }
        for call in calls
    ]


def _usage(usage: TokenUsage | None) -> Json:
    used = usage or TokenUsage()
    total = used.input_tokens + used.output_tokens
    return {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens, "total_tokens": total}


class _PushedEvent(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _EventsPush(msgspec.Struct):
    events: list[_PushedEvent]


_read_push = msgspec.json.Decoder(_EventsPush)


class TextExtractor:
    """The answer's text in the pushed events of one run."""

    def __init__(self) -> None:
        self._text = TextAssembler()

    @property
    def has_text(self) -> bool:
        """Whether there was any."""
        return self._text.length > 0

    def feed(self, data: bytes) -> str:
        """The text in the events of a push."""
        said: list[str] = []
        for event in _read_push.decode(data).events:
            if event.type in ANSWER_TEXT_EVENTS:
                said.append(self._text.add(joined_text([event.data])))
            elif event.type in PARAGRAPH_EVENTS:
                self._text.break_paragraph()
        return "".join(said)
