"""Envelopes as text: what the struct would give, as many as fit."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.events.ring import EventBatch, TextPieceBlock
from wire.events import EventChannel
from wire.messages import EMPTY, EventEnvelope


def block_of(texts: list[str], *, first: int = 1, session: str = "a", run_id: str | None = "r1") -> TextPieceBlock:
    raw = b"\n".join(msgspec.json.encode(each) for each in texts)
    return TextPieceBlock(first, first + len(texts) - 1, 1769853600.25, session, run_id, "text_chunk", raw)


def decoded(batch: EventBatch) -> list[EventEnvelope]:
    return msgspec.json.decode(b"[" + batch.finish().body + b"]", type=list[EventEnvelope])


names = st.text(max_size=20)


@settings(max_examples=40)
@given(
    texts=st.lists(st.text(max_size=20), min_size=1, max_size=9),
    session=names,
    run_id=st.none() | names,
    data=st.data(),
)
def test_text_is_encoded_as_its_envelopes_would_be(
    texts: list[str], session: str, run_id: str | None, data: st.DataObject
) -> None:
    block = block_of(texts, first=7, session=session, run_id=run_id)
    after = data.draw(st.integers(0, block.seq))
    batch = EventBatch(1 << 20)
    assert batch.add(block, after)
    for envelope, (seq, text) in zip(decoded(batch), list(enumerate(texts, 7))[max(0, after - 6) :], strict=True):
        assert (envelope.seq, envelope.ts, envelope.session) == (seq, block.ts, session)
        assert (envelope.run_id, envelope.channel, envelope.type) == (run_id, EventChannel.PROGRESS, "text_chunk")
        assert msgspec.json.decode(envelope.data) == {"delta": text}


@given(texts=st.lists(st.text(max_size=50), min_size=1, max_size=20), max_bytes=st.integers(1, 3000))
def test_as_many_pieces_are_taken_as_fit_and_the_rest_later(texts: list[str], max_bytes: int) -> None:
    block, position, seen = block_of(texts, first=99_999_990), 0, list[str]()
    while position < block.seq:
        batch = EventBatch(max_bytes)
        whole = batch.add(block, position)
        taken = batch.finish()
        assert taken.count >= 1
        assert len(taken.body) <= max_bytes or taken.count == 1
        if not whole:  # one more would not have fitted
            more = EventBatch(1 << 20)
            more.add(block, position)
            assert len(json.dumps(json.loads(b"[" + more.finish().body + b"]"))) > max_bytes - 300
        position = taken.last_seq
        assert whole == (position == block.seq)
        seen += [msgspec.json.decode(envelope.data)["delta"] for envelope in decoded(batch)]
    assert seen == texts


def test_a_batch_takes_events_until_it_is_full_and_the_first_whatever_its_size() -> None:
    large = EventEnvelope(1, 0.0, "a", EventChannel.MONITOR, "note", msgspec.Raw(b'"%b"' % (b"x" * 1000)))
    batch = EventBatch(500)
    assert batch.add(large)
    assert not batch.add(EventEnvelope(2, 0.0, "a", EventChannel.MONITOR, "note"))
    assert not batch.add(block_of(["x"], first=3), 2)
    taken = batch.finish()
    assert (taken.count, taken.last_seq, taken.types) == (1, 1, frozenset({"note"}))
    batch = EventBatch(10_000)
    assert batch.add(EventEnvelope(1, 0.0, "a", EventChannel.CONTROL, "ask"))
    assert batch.add(block_of(["x", "y"], first=2), 1)
    assert batch.finish().types == {"ask", "text_chunk"}


@pytest.mark.parametrize("data", [EMPTY, msgspec.Raw(b'{"a": [1, "e"]}')])
def test_an_event_is_encoded_as_the_struct_is(data: msgspec.Raw) -> None:
    envelope = EventEnvelope(1, 0.5, "a", EventChannel.MONITOR, "x", data)
    batch = EventBatch(1000)
    batch.add(envelope)
    assert batch.finish().body == msgspec.json.encode(envelope)
