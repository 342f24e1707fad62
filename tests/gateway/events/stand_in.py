"""An honest store in memory: rows become durable when the test lets them, or never; and what tests share."""

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

import msgspec
import trio

from gateway.events.bus import EventBus
from gateway.events.cursor import EventCursor
from gateway.settings import EventSettings
from store.records import EventRow
from wire.units import ByteCount

by_seq = attrgetter("seq")
SMALL_RING = 20_000


class MemoryStore:
    """``commits`` is what a flush waits for: an event that is set lets it through."""

    def __init__(self, first_seq: int = 1) -> None:
        self.rows: list[EventRow] = []
        self.first_seq = first_seq
        self.noted = first_seq - 1
        self.durable_upto = first_seq - 1
        self.is_degraded = self.has_been_degraded = False
        self.commits = trio.Event()
        self.commits.set()
        self.flushes = 0
        self.reads = 0
        self.oldest_seq = 0

    def put_event(self, row: EventRow) -> None:
        insort(self.rows, row, key=by_seq)

    def put_events(self, rows: Iterable[EventRow]) -> None:
        for row in rows:
            self.put_event(row)

    def record_seq(self, seq: int) -> int:
        assert seq >= self.noted
        self.noted = seq
        return seq

    def commit(self) -> bool:
        if self.is_degraded or not self.commits.is_set():
            return False
        self.flushes += 1
        self.durable_upto = self.noted
        return True

    async def flush(self) -> bool:
        self.flushes += 1
        upto = self.noted
        await trio.lowlevel.checkpoint()
        await self.commits.wait()
        if self.is_degraded:
            return False
        self.durable_upto = upto
        return True

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        self.reads += 1
        known = list(self.rows)  # put before the call
        await trio.lowlevel.checkpoint()
        rows = known[bisect_right(known, after, key=by_seq) : bisect_left(known, before, key=by_seq)]
        return [row for row in rows if session in (None, row.session)][:limit]

    # --- what tests do ---

    def hold_commits(self) -> None:
        if self.commits.is_set():
            self.commits = trio.Event()

    def let_commit(self) -> None:
        self.commits.set()

    def degrade(self, *, now: bool) -> None:
        """The disk refuses from now on, or no longer."""
        self.is_degraded = now
        self.has_been_degraded |= now
        if now:
            self.let_commit()  # a store that cannot write says so at once

    def drop_below(self, seq: int) -> None:
        """Retention."""
        self.oldest_seq = seq
        del self.rows[: bisect_left(self.rows, seq, key=by_seq)]

    def next_life(self, gap: int) -> "MemoryStore":
        """The same store, opened again after a clean stop."""
        store = MemoryStore(self.noted + 1 + gap)
        store.rows, store.oldest_seq, store.is_degraded = self.rows, self.oldest_seq, self.is_degraded
        store.has_been_degraded = self.is_degraded
        return store


@asynccontextmanager
async def open_bus(store: MemoryStore | None = None, *, ring: int = 1 << 20) -> AsyncIterator[EventBus]:
    """A bus with its task; ``ring`` in bytes."""
    store = store or MemoryStore()
    bus = EventBus(store, EventSettings(ring=ByteCount(ring)), first_seq=store.first_seq, clock=lambda: 1.5)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        yield bus
        nursery.cancel_scope.cancel()


def flood(bus: EventBus, session: str = "loud", count: int = 200) -> None:
    """More than ``SMALL_RING`` bytes."""
    for number in range(count):
        bus.publish(session, "noise", {"n": number})


def raws(*texts: str) -> list[msgspec.Raw]:
    """Pieces as a worker's JSON holds them."""
    return [msgspec.Raw(msgspec.json.encode(text)) for text in texts]


async def take(cursor: EventCursor, max_bytes: int = 128 * 1024) -> list[dict[str, Any]]:
    """What a cursor gives, decoded; its own account of it must be true."""
    with trio.fail_after(5):
        taken = await cursor.read(max_bytes)
    events: list[dict[str, Any]] = json.loads(b"[" + taken.body + b"]")
    assert len(events) == taken.count > 0
    assert events[-1]["seq"] == taken.last_seq <= cursor.position
    assert {event["type"] for event in events} == taken.types
    assert len(taken.body) <= max_bytes or taken.count == 1
    return events


async def take_all(cursor: EventCursor, max_bytes: int = 128 * 1024) -> list[dict[str, Any]]:
    """Everything there is until the cursor waits."""
    events: list[dict[str, Any]] = []
    while True:
        with trio.move_on_after(1) as patience:
            events += await take(cursor, max_bytes)
        if patience.cancelled_caught:
            return events
