"""The ring: what is read is what is asked for, and the oldest gives way."""

import tracemalloc

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.events.ring import ITEM_BYTES, Item, Ring, TextPieceBlock, size_of
from wire.events import EventChannel
from wire.messages import EventEnvelope


def event(seq: int, session: str = "a", size: int = 10) -> EventEnvelope:
    return EventEnvelope(seq, 1.0, session, EventChannel.MONITOR, "note", msgspec.Raw(b'"%b"' % (b"x" * (size - 2))))


def text(first: int, count: int, session: str = "a", size: int = 3) -> TextPieceBlock:
    piece = b'"%b"' % (b"x" * (size - 2))
    return TextPieceBlock(first, first + count - 1, 1.0, session, None, "text_chunk", b"\n".join([piece] * count))


@st.composite
def streams(draw: st.DrawFn) -> list[Item]:
    """Items as a bus makes them: in seq order, with gaps."""
    items: list[Item] = []
    seq = draw(st.integers(1, 5))
    for session, count, gap in draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(1, 3)), max_size=40)
    ):
        items.append(text(seq, count, session) if count else event(seq, session))
        seq = items[-1].seq + gap
    return items


def ring_of(items: list[Item], limit: int = 1 << 20) -> Ring:
    ring = Ring(limit, 0)
    for item in items:
        ring.append(item)
    return ring


@given(streams(), st.integers(0, 100), st.integers(0, 100), st.sampled_from([None, "a", "b", "z"]))
def test_reading_gives_the_items_between_two_seqs(
    items: list[Item], after: int, upto: int, session: str | None
) -> None:
    expected = [item for item in items if after < item.seq <= upto and (session is None or item.session == session)]
    assert list(ring_of(items).read(session, after, upto)) == expected


@given(streams(), st.integers(100, 6000))
def test_eviction_takes_the_oldest_and_leaves_the_rest_as_it_was(items: list[Item], limit: int) -> None:
    ring = ring_of(items, limit)
    was_over = ring.bytes > ring.limit
    evicted = ring.evict() if was_over else []
    kept = items[len(evicted) :]
    assert evicted == items[: len(evicted)]
    assert bool(evicted) == was_over
    assert ring.bytes <= ring.limit
    assert ring.floor == (evicted[-1].seq if evicted else 0)
    assert list(ring.read(None, 0, 1 << 40)) == kept
    assert ring.bytes == sum(map(size_of, kept))
    assert ring.sessions == len({item.session for item in kept})
    for session in "abc":
        assert list(ring.read(session, 0, 1 << 40)) == [item for item in kept if item.session == session]


def test_a_full_ring_gives_up_a_part_of_itself_not_all() -> None:
    ring = ring_of([event(seq) for seq in range(1, 101)], limit=99 * (ITEM_BYTES + 10))
    evicted = ring.evict()
    assert 1 < len(evicted) < 10


def test_one_item_larger_than_the_ring_is_evicted_too() -> None:
    ring = ring_of([text(1, 1, size=5000)], limit=1000)
    assert len(ring.evict()) == 1
    assert (len(ring), ring.bytes, ring.sessions, ring.floor) == (0, 0, 0, 1)


def test_the_ring_counts_about_the_memory_that_it_takes() -> None:
    def fill(ring: Ring, number: int) -> None:
        session = f"session {number % 500}"
        ring.append(event(2 * number, session, size=100))
        ring.append(text(2 * number + 1, 1, session, size=20))

    tracemalloc.start()
    try:
        ring = Ring(1 << 30, 0)
        for number in range(10_000):
            fill(ring, number)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.5 * ring.bytes < used < 1.5 * ring.bytes
