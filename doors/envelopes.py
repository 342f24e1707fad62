"""Events as a front end receives them: the raw JSON of a push, decoded only as far as somebody looks."""

import msgspec

from wire.envelope import EventEnvelope

__all__ = ["last_seq", "read_envelopes", "split_envelopes"]


class _Place(msgspec.Struct, frozen=True, gc=False):
    seq: int


_envelopes = msgspec.json.Decoder(list[EventEnvelope])
_lines = msgspec.json.Decoder(list[msgspec.Raw])
_place = msgspec.json.Decoder(_Place)


def read_envelopes(events: msgspec.Raw) -> list[EventEnvelope]:
    """The envelopes of a push; their data stays undecoded."""
    return _envelopes.decode(events)


def split_envelopes(events: msgspec.Raw) -> list[msgspec.Raw]:
    """The same as the JSON text of each envelope."""
    return _lines.decode(events)


def last_seq(envelopes: list[msgspec.Raw]) -> int:
    """The bookmark behind envelopes, of which there is at least one."""
    return _place.decode(envelopes[-1]).seq
