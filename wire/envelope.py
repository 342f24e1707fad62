"""The event envelope: how an event looks once it has left the worker and goes to front ends.

``seq`` is strictly increasing across all sessions and channels of one supervisor; gaps are normal; a bookmark is a seq.
"""

from enum import StrEnum

import msgspec

from wire.messages import EMPTY

__all__ = ["Channel", "EventEnvelope"]


class Channel(StrEnum):
    """Who an event is for: a UI that draws, a person who must decide, or whoever governs."""

    PROGRESS = "progress"
    CONTROL = "control"
    MONITOR = "monitor"


class EventEnvelope(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One event in the gateway's order. ``ts`` is Unix time in seconds; ``data`` undecoded JSON."""

    seq: int
    ts: float
    session: str
    channel: Channel
    type: str
    data: msgspec.Raw = EMPTY
    run_id: str | None = None
