"""Messages and envelopes on the wire."""

import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.events import EventChannel
from wire.messages import (
    EMPTY,
    ErrorBody,
    EventEnvelope,
    ImageContent,
    Message,
    PromptParams,
    PromptResult,
    RequestMessage,
    TextParams,
)


def test_an_event_and_an_answer_are_told_apart_by_their_members() -> None:
    event = msgspec.json.decode(b'{"event":"done"}', type=Message)
    answer = msgspec.json.decode(b'{"id":"1","result":null}', type=Message)
    assert (event.event, event.id, event.data) == ("done", None, EMPTY)
    assert (answer.event, answer.id, bytes(answer.result)) == (None, "1", b"null")


@given(st.text(), st.none() | st.text(), st.dictionaries(st.text(), st.integers(-(2**63), 2**64 - 1)))
def test_a_message_survives_the_wire(event: str, request_id: str | None, data: dict[str, int]) -> None:
    message = Message(id=request_id, event=event, data=msgspec.Raw(msgspec.json.encode(data)))
    again = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert (again.id, again.event, msgspec.json.decode(again.data)) == (request_id, event, data)


def test_messages_are_not_tracked_by_the_garbage_collector_however_many_wait() -> None:
    decoder = msgspec.json.Decoder(Message)
    waiting = decoder.decode_lines(b'{"event":"x","data":{}}\n' * 10)
    assert not any(gc.is_tracked(message) for message in waiting)


def test_defaults_stay_off_the_wire() -> None:
    assert msgspec.json.encode(RequestMessage("1", "ping")) == b'{"id":"1","method":"ping"}'
    assert msgspec.json.encode(PromptParams("hi")) == b'{"text":"hi"}'
    assert msgspec.json.encode(Message(id="1", error=ErrorBody("busy"))) == b'{"id":"1","error":{"code":"busy"}}'


@pytest.mark.parametrize("kind", [PromptParams, TextParams])
def test_a_misspelt_parameter_is_refused_not_ignored(kind: type) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `txet`"):
        msgspec.json.decode(b'{"text":"a","txet":"b"}', type=kind)


def test_an_image_names_its_mime_type_as_the_wire_does() -> None:
    prompt = PromptParams("look", images=[ImageContent(data="AAAA", mime_type="image/jpeg")])
    encoded = msgspec.json.encode(prompt)
    assert b'"mimeType":"image/jpeg"' in encoded
    assert msgspec.json.decode(encoded, type=PromptParams) == prompt


def test_a_result_of_a_newer_worker_is_still_read() -> None:
    result = msgspec.json.decode(b'{"text":"a","stop_reason":"aborted","of_tomorrow":1}', type=PromptResult)
    assert (result.text, result.stop_reason) == ("a", "aborted")
    with pytest.raises(msgspec.ValidationError, match="stop_reason"):
        msgspec.json.decode(b'{"stop_reason":"bored"}', type=PromptResult)


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
