"""Responses in OpenAI's shape. Pure."""

from typing import Any, NamedTuple

from doors.openai.answers import calls_of
from doors.openai.places import Place
from doors.openai.refusals import error_facts
from doors.openai.response_ids import response_id
from doors.openai.response_requests import ResponseRequest
from errors import PoolError
from gateway.run import DoneReason, RunOutcome
from wire.messages import TokenUsage

__all__ = ["Head", "call_items", "head_of", "message_item", "response", "text_part"]

Json = dict[str, Any]


class Head(NamedTuple):
    """The fields of a response that do not change: its id, and what was asked for."""

    place: Place
    fields: Json

    @property
    def message_id(self) -> str:
        """The id of the message in it."""
        return f"msg_{self.place.run}"


def head_of(place: Place, *, model: str, created: int, request: ResponseRequest | None = None) -> Head:
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
    return Head(place, fields)


def response(head: Head, outcome: RunOutcome | None, *, text: str = "", error: PoolError | None = None) -> Json:
    """The response now; without outcome and error it is in progress. ``text``: the answer."""
    ended: Json = {"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    if error is not None:
        facts = error_facts(error)
        ended |= {"status": "failed", "error": {"code": facts["code"], "message": facts["message"]}}
    elif outcome is not None:
        cut = outcome.reason is DoneReason.LENGTH
        ended |= {"status": "incomplete" if cut else "completed", "usage": _usage(outcome.usage)}
        ended["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        calls = call_items(head, outcome)
        ended["output"] = [*([message_item(head, text)] if text or not calls else []), *calls]
    return {**head.fields, **ended}


def message_item(head: Head, text: str | None) -> Json:
    """The assistant's message; ``text`` None: it has just begun."""
    item: Json = {"type": "message", "id": head.message_id, "role": "assistant"}
    if text is None:
        return {**item, "status": "in_progress", "content": []}
    return {**item, "status": "completed", "content": [text_part(text)]}


def text_part(text: str) -> Json:
    """The content of that message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_items(head: Head, outcome: RunOutcome) -> list[Json]:
    """The calls that the client is to carry out."""
    return [
        {
            "type": "function_call",
            "id": f"fc_{number}_{head.place.run}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for number, call in enumerate(calls_of(outcome.calls, head.place))
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
