"""Events as a front end receives them, made for tests of what is shown."""

from typing import Any

import msgspec

from wire.events import EventChannel
from wire.messages import EventEnvelope


def event(type_: str, data: Any = None, *, seq: int = 1, session: str = "ada", **others: Any) -> EventEnvelope:
    """One event; ``others``: run_id, channel, ts."""
    given = {"ts": 0.0, "channel": EventChannel.PROGRESS, "run_id": "r1", **others}
    return EventEnvelope(seq=seq, session=session, type=type_, data=msgspec.Raw(msgspec.json.encode(data)), **given)


def text(piece: str, **others: Any) -> EventEnvelope:
    """A piece of the answer."""
    return event("text_chunk", {"delta": piece}, **others)


def pushed(*events: EventEnvelope) -> msgspec.Raw:
    """The events of one push."""
    return msgspec.Raw(msgspec.json.encode(events))
