"""Server-sent events as bytes: from the frame of a subscription to messages, each under the seq to go on from. Pure."""

from typing import Any

import msgspec

__all__ = ["STREAM_HEADERS", "STREAM_TYPE", "batch_message", "event_message", "event_messages", "message"]

STREAM_TYPE = "text/event-stream"
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class _Place(msgspec.Struct, gc=False):
    seq: int


class _Events(msgspec.Struct):
    events: list[msgspec.Raw]


class _Places(msgspec.Struct):
    events: list[_Place]


_read_events = msgspec.json.Decoder(_Events)
_read_places = msgspec.json.Decoder(_Places)
_read_place = msgspec.json.Decoder(_Place)
_encode = msgspec.json.Encoder().encode
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Between JSON's tokens a line end is as good as a space; within its texts there is none."""


def event_messages(data: bytes) -> bytes:
    """A message for each event of a frame ``{"events": [...]}``."""
    data = _in_one_line(data)
    events, places = _read_events.decode(data).events, _read_places.decode(data).events
    return b"".join([b"id: %d\ndata: %b\n\n" % (place.seq, event) for place, event in zip(places, events, strict=True)])


def batch_message(data: bytes) -> bytes:
    """One message for all of them: a list, under the seq of the last one."""
    events = _read_events.decode(_in_one_line(data)).events
    return b"id: %d\ndata: [%b]\n\n" % (_read_place.decode(events[-1]).seq, b",".join(events))


def _in_one_line(data: bytes) -> bytes:
    """JSON without line ends, which would be taken for the end of a message's line."""
    return data.translate(_ONE_LINE) if b"\n" in data or b"\r" in data else data


def event_message(name: str, data: bytes) -> bytes:
    """A message of that name with JSON text as its data."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _in_one_line(data))


def message(name: str, seq: int, facts: dict[str, Any]) -> bytes:
    """A message of the stream itself, under the seq to go on from."""
    return b"id: %d\n%b" % (seq, event_message(name, _encode(facts)))
