"""Answers in OpenAI's shape: a completion, or the messages of a stream. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from doors.openai.places import Place
from doors.openai.refusals import error_body
from errors import PoolError
from gateway.run import DoneReason, RunOutcome
from wire.messages import TokenUsage

__all__ = ["DONE", "WAITING", "Chunks", "calls_of", "completion", "in_one_line", "message"]

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
