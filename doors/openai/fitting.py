"""Checks an answer against what was asked for, JSON of a schema or a tool call, and words the correction.

Some model servers enforce both; the answers of all are checked.
"""

import re

import msgspec

from doors.openai.schemas import Schemas
from doors.openai.stops import cut_at
from gateway.run import DoneReason, RunOutcome
from wire.framing import DECODE_ERRORS
from wire.messages import AnswerOptions, TokenUsage

__all__ = ["correction", "misfit", "shown", "together"]

_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)


def shown(outcome: RunOutcome, wanted: AnswerOptions) -> RunOutcome:
    """The outcome as the client is shown it: cut at the first stop, JSON without a Markdown fence."""
    text = cut_at(wanted.stop, outcome.text)
    if wanted.json is not None and (fenced := _FENCED.fullmatch(text)):
        text = fenced[1]
    return msgspec.structs.replace(outcome, text=text) if text != outcome.text else outcome


async def misfit(outcome: RunOutcome, wanted: AnswerOptions, schemas: Schemas) -> str | None:
    """Why the answer does not fit; None if it fits, failed, or was cut off at its length."""
    if outcome.error is not None or outcome.reason is DoneReason.LENGTH:
        return None
    if wanted.must_call and not any(call.get("name") in wanted.must_call for call in outcome.calls):
        return f"there is no call of {' or '.join(wanted.must_call)}"[:500]
    if wanted.json is None or outcome.calls:
        return None
    text = outcome.text.encode()
    try:
        value = msgspec.json.decode(text)
    except DECODE_ERRORS as exc:
        return f"it is no JSON: {exc}"
    if wanted.json.schema is None:
        return None if isinstance(value, dict) else "it is no JSON object"
    return await schemas.misfit(wanted.json.schema, text)


def correction(wanted: AnswerOptions, problem: str) -> str:
    """The prompt of the second run."""
    if wanted.must_call:
        return f"That is not what was asked for: {problem}. Make that call now instead of answering in text."
    return f"That is not the JSON that was asked for: {problem}. Answer again, with that JSON value and nothing else."


def together(first: RunOutcome, second: RunOutcome) -> RunOutcome:
    """The second outcome, with the tokens of both."""
    one, other = first.usage or TokenUsage(), second.usage or TokenUsage()
    usage = TokenUsage(one.input_tokens + other.input_tokens, one.output_tokens + other.output_tokens)
    return msgspec.structs.replace(second, usage=usage)
