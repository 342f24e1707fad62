"""Response objects of ``/v1/responses``, and the numbered events of a streamed one. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from doors.openai.completion_bodies import client_calls
from doors.openai.errors import error_fields
from doors.openai.responses_requests import ResponseRequest
from doors.openai.session_ref import SessionRef, response_id
from errors import PoolError
from gateway.runs.run import DoneReason, RunOutcome
from wire.framing import escape_line_separators
from wire.messages import TokenUsage

Json = dict[str, Any]


class ResponseHead(NamedTuple):
    """The fields of a response that do not change: its id, and what was asked for."""

    session_ref: SessionRef
    fields: Json

    @property
    def message_id(self) -> str:
        """The id of the message in it."""
        return f"msg_{self.session_ref.run}"


def response_head(
    place: SessionRef, *, model: str, created: int, request: ResponseRequest | None = None
) -> ResponseHead:
    """``request`` None: what was asked for is no longer known."""
    asked = request or ResponseRequest(model=model, input="")
    form = asked.text.format if asked.text and asked.text.format else {"type": "text"}
    tools = [{"type": tool.type, "name": tool.name, "parameters": tool.parameters} for tool in asked.tools or ()]
    fields: Json = {
        "id": response_id(place.session, place.run),
        "object": "response",
        "created_at": created,
        "model": model,
        "instructions": asked.instructions,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": True,
        "previous_response_id": asked.previous_response_id,
        "store": asked.store is not False,
        "temperature": None,
        "text": {"format": form},
        "tool_choice": asked.tool_choice or "auto",
        "tools": [{"strict": None, **tool} for tool in tools],
        "top_p": None,
        "truncation": "disabled",
    }
    return ResponseHead(place, fields)


def response_body(
    head: ResponseHead, outcome: RunOutcome | None, *, text: str | None = None, error: PoolError | None = None
) -> Json:
    """The response now; without outcome and error it is in progress. ``text``: what was sent where it was streamed."""
    ended: Json = {"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    if error is not None:
        facts = error_fields(error)
        ended |= {"status": "failed", "error": {"code": facts["code"], "message": facts["message"]}}
    elif outcome is not None:
        cut = outcome.reason is DoneReason.LENGTH
        ended |= {"status": "incomplete" if cut else "completed", "usage": _usage(outcome.usage)}
        ended["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        calls = call_items(head, outcome)
        text = outcome.text if text is None else text
        ended["output"] = [*([message_item(head, text)] if text or not calls else []), *calls]
    return {**head.fields, **ended}


def message_item(head: ResponseHead, text: str | None) -> Json:
    """The assistant's message; ``text`` None: it has just begun."""
    item: Json = {"type": "message", "id": head.message_id, "role": "assistant"}
    if text is None:
        return {**item, "status": "in_progress", "content": []}
    return {**item, "status": "completed", "content": [text_part(text)]}


def text_part(text: str) -> Json:
    """The content of that message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_items(head: ResponseHead, outcome: RunOutcome) -> list[Json]:
    """The calls that the client is to carry out."""
    return [
        {
            "type": "function_call",
            "id": f"fc_{number}_{head.session_ref.run}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for number, call in enumerate(client_calls(outcome.calls, head.session_ref))
    ]


def _usage(usage: TokenUsage | None) -> Json:
    used = usage or TokenUsage()
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


_encode = msgspec.json.Encoder().encode


class ResponseEvents:
    """Makes the messages of one stream (a ``doors.openai.completion.Messages``)."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._texts: list[str] = []
        self._number = 0
        self._has_begun = False

    def text(self, text: str) -> bytes:
        """More of the answer."""
        events = [*self._begin(), *([] if self._texts else self._begin_message())]
        self._texts.append(text)
        delta = {**self._part_fields, "delta": text, "logprobs": []}
        return b"".join([*events, self._event("response.output_text.delta", **delta)])

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        events = [*self._begin()]
        calls = call_items(self._head, outcome)
        if not self._texts and not calls:
            events += self._begin_message()
        if self._texts or not calls:
            events += self._end_message()
        for index, call in enumerate(calls, 1 if self._texts else 0):
            events += self._call(index, call)
        whole = response_body(self._head, outcome, text="".join(self._texts))
        events.append(self._event(f"response.{whole['status']}", response=whole))
        return b"".join(events)

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        whole = response_body(self._head, None, error=error)
        return b"".join([*self._begin(), self._event("response.failed", response=whole)])

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _begin(self) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            for name in ("response.created", "response.in_progress"):
                yield self._event(name, response=response_body(self._head, None))

    @property
    def _part_fields(self) -> Json:
        return {"item_id": self._head.message_id, "output_index": 0, "content_index": 0}

    def _begin_message(self) -> Iterator[bytes]:
        yield self._event("response.output_item.added", output_index=0, item=message_item(self._head, None))
        yield self._event("response.content_part.added", **self._part_fields, part=text_part(""))

    def _end_message(self) -> Iterator[bytes]:
        text = "".join(self._texts)
        yield self._event("response.output_text.done", **self._part_fields, text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._part_fields, part=text_part(text))
        yield self._event("response.output_item.done", output_index=0, item=message_item(self._head, text))

    def _call(self, index: int, call: Json) -> Iterator[bytes]:
        place = {"item_id": call["id"], "output_index": index}
        begun = {**call, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event("response.function_call_arguments.delta", **place, delta=call["arguments"])
        given = {"name": call["name"], "arguments": call["arguments"]}
        yield self._event("response.function_call_arguments.done", **place, **given)
        yield self._event("response.output_item.done", output_index=index, item=call)

    def _event(self, kind: str, /, **facts: Any) -> bytes:
        data = _encode({"type": kind, "sequence_number": self._number, **facts})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), escape_line_separators(data))
