"""Many events leave nothing behind but what the ring may hold."""

import tracemalloc
from collections.abc import Iterable

import pytest
import trio

from gateway.events.bus import EventBus
from gateway.events.cursor import EventCursor
from gateway.settings import EventSettings
from store.records import EventRow
from tests.gateway.events.stand_in import raws
from wire.units import ByteCount

RING = 1 << 18
BATCH = 500


class Sink:
    """A store of which nothing is read: what the bus keeps is all there is."""

    is_degraded = False

    def __init__(self) -> None:
        self.rows = 0

    def put_event(self, row: EventRow) -> None:  # noqa: ARG002  # forgotten
        self.rows += 1

    def put_events(self, rows: Iterable[EventRow]) -> None:
        self.rows += len(list(rows))

    def record_seq(self, seq: int) -> int:
        return seq

    def commit(self) -> bool:
        return True

    async def flush(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        pytest.fail(f"the reader keeps pace, yet reads {session} {after}..{before}, {limit}")

    oldest_seq = 0


async def test_further_events_take_no_more_memory_than_the_first_ones() -> None:
    store = Sink()
    bus = EventBus(store, EventSettings(ring=ByteCount(RING)), first_seq=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        cursor = bus.open_cursor()
        await pass_through(bus, cursor, rounds=60)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await pass_through(bus, cursor, rounds=150)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert bus.head > 100_000
        assert bus.statistics().ring_bytes <= RING
        assert bus.statistics().ring_sessions <= 50
        assert grown < 2 * RING  # the ring of before is not counted, the one of now is
        assert store.rows > 210
        nursery.cancel_scope.cancel()


async def pass_through(bus: EventBus, cursor: EventCursor, rounds: int) -> None:
    pieces = raws(*["word "] * BATCH)
    for number in range(rounds):
        session = f"session {number % 50}"
        bus.publish_text(session, "text_chunk", pieces, run_id=f"r{number}")
        bus.publish(session, "done", {"text": "x"}, run_id=f"r{number}")
        await bus.wait_visible(bus.statistics().last_seq)
        while cursor.position < bus.head:
            await cursor.read()
