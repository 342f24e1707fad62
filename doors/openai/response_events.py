"""The messages of a streamed response: typed, numbered events for each item from beginning to end. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from doors.openai.answers import in_one_line
from doors.openai.response_objects import Head, call_items, message_item, response, text_part
from errors import PoolError
from gateway.run import RunOutcome

__all__ = ["ResponseEvents"]

_encode = msgspec.json.Encoder().encode

Json = dict[str, Any]


class ResponseEvents:
    """Makes the messages of one stream (a ``doors.openai.stream.Messages``)."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._said: list[str] = []
        self._number = 0
        self._has_begun = False

    def text(self, text: str) -> bytes:
        """More of the answer."""
        events = [*self._begin(), *([] if self._said else self._begin_message())]
        self._said.append(text)
        delta = {**self._part_place, "delta": text, "logprobs": []}
        return b"".join([*events, self._event("response.output_text.delta", **delta)])

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        events = [*self._begin()]
        calls = call_items(self._head, outcome)
        if not self._said and not calls:
            events += self._begin_message()
        if self._said or not calls:
            events += self._end_message()
        for index, call in enumerate(calls, 1 if self._said else 0):
            events += self._call(index, call)
        whole = response(self._head, outcome, text="".join(self._said))
        events.append(self._event(f"response.{whole['status']}", response=whole))
        return b"".join(events)

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        whole = response(self._head, None, error=error)
        return b"".join([*self._begin(), self._event("response.failed", response=whole)])

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _begin(self) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            for name in ("response.created", "response.in_progress"):
                yield self._event(name, response=response(self._head, None))

    @property
    def _part_place(self) -> Json:
        return {"item_id": self._head.message_id, "output_index": 0, "content_index": 0}

    def _begin_message(self) -> Iterator[bytes]:
        yield self._event("response.output_item.added", output_index=0, item=message_item(self._head, None))
        yield self._event("response.content_part.added", **self._part_place, part=text_part(""))

    def _end_message(self) -> Iterator[bytes]:
        text = "".join(self._said)
        yield self._event("response.output_text.done", **self._part_place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._part_place, part=text_part(text))
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
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), in_one_line(data))
