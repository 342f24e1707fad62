"""The data of pushed frames, put together from events that are JSON text already."""

import msgspec

__all__ = ["events_frame"]

_encode = msgspec.json.Encoder().encode


def events_frame(name: str, owner: str | int, events: bytes) -> bytes:
    """``{NAME: OWNER, "events": [...]}``; ``events`` are envelopes joined by commas."""
    return b'{"%b":%b,"events":[%b]}' % (name.encode(), _encode(owner), events)
