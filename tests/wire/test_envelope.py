import msgspec
import pytest

from wire.events import EventChannel
from wire.messages import EventEnvelope


def test_an_envelope_survives_the_wire_with_its_data_untouched() -> None:
    envelope = EventEnvelope(7, 1.5, "main:alice", EventChannel.PROGRESS, "done", msgspec.Raw(b'{"a": 1}'), "r1")
    encoded = msgspec.json.encode(envelope)
    again = msgspec.json.decode(encoded, type=EventEnvelope)
    assert b'"data":{"a": 1}' in encoded
    assert (again.seq, again.session, again.channel, again.run_id) == (7, "main:alice", EventChannel.PROGRESS, "r1")
    assert bytes(again.data) == b'{"a": 1}'


def test_an_absent_run_and_absent_data_stay_off_the_wire() -> None:
    encoded = msgspec.json.encode(EventEnvelope(1, 0.0, "s", EventChannel.MONITOR, "x"))
    assert msgspec.json.decode(encoded) == {"seq": 1, "ts": 0.0, "session": "s", "channel": "monitor", "type": "x"}


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="channel"):
        msgspec.json.decode(b'{"seq":1,"ts":0,"session":"s","channel":"gossip","type":"x"}', type=EventEnvelope)


def test_an_envelope_cannot_be_changed_once_it_has_its_number() -> None:
    envelope = EventEnvelope(1, 0.0, "s", EventChannel.CONTROL, "x")
    with pytest.raises(AttributeError, match="immutable"):
        envelope.seq = 2  # type: ignore[misc]  # that is the point
