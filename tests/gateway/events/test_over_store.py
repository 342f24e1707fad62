"""The bus over the real store: text comes back from the file as it was, over lives and through a refusing disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from gateway.events.bus import EventBus
from gateway.settings import EventSettings
from store.settings import StoreSettings
from store.store import Store, open_store
from tests.gateway.events.stand_in import raws, take
from wire.units import ByteCount


@asynccontextmanager
async def life(path: Path, *, ring: int = 30_000, events: int = 1_000_000) -> AsyncIterator[tuple[EventBus, Store]]:
    """One life of a supervisor: the store, the bus over it, a clean stop."""
    async with open_store(path, StoreSettings(events=events), on_trouble=lambda _kind, _facts: None) as store:
        bus = EventBus(store, EventSettings(ring=ByteCount(ring)), first_seq=store.loaded.first_seq)
        async with trio.open_nursery() as nursery:
            await nursery.start(bus.run)
            yield bus, store
            nursery.cancel_scope.cancel()


def speak(bus: EventBus, rounds: int, *, sessions: int = 5) -> dict[str, str]:
    """Publish text of several sessions in turns, each with a ``done`` at its end; return what each said."""
    said = dict.fromkeys((f"s{number}" for number in range(sessions)), "")
    for number in range(rounds):
        session = f"s{number % sessions}"
        texts = [f"{number}é ", "word\n"]
        bus.publish_text(session, "text_chunk", raws(*texts), run_id="r")
        said[session] += "".join(texts)
    for session, text in said.items():
        bus.publish(session, "done", {"text": text}, run_id="r")
    return said


async def read_to(bus: EventBus, head: int, since: int, session: str | None = None) -> list[dict[str, Any]]:
    cursor = bus.open_cursor(session=session, since=since)
    events: list[dict[str, Any]] = []
    while cursor.position < head:
        events += await take(cursor, max_bytes=10_000)
    assert cursor.complete
    return events


def heard(events: list[dict[str, Any]]) -> dict[str, str]:
    """What each session said; seqs must rise and snapshots must not overlap."""
    texts: dict[str, str] = {}
    last = 0
    for event in events:
        data = event["data"]
        assert data.get("from_seq", event["seq"]) > last
        last = event["seq"]
        texts[event["session"]] = texts.get(event["session"], "") + data.get("delta", "")
        if "from_seq" in data:
            texts[event["session"]] += data["text"]
        if event["type"] == "done":
            assert data["text"] == texts[event["session"]]
    return texts


async def test_text_is_read_back_whole_from_file_and_memory_and_by_the_next_life_from_any_bookmark(
    tmp_path: Path,
) -> None:
    async with life(tmp_path / "pool.db") as (bus, _):
        begin = bus.head
        said = speak(bus, 1000)
        await bus.wait_visible(bus.statistics().last_seq)
        assert bus.statistics().ring_floor > begin
        first = await read_to(bus, bus.head, begin)
        assert heard(first) == said
        assert {"text_snapshot", "text_chunk", "done"} == {event["type"] for event in first}
        assert heard(await read_to(bus, bus.head, begin, "s1")) == {"s1": said["s1"]}
        head = bus.head
    async with life(tmp_path / "pool.db") as (bus, _):
        assert bus.head > head
        for event in first[:: len(first) // 7]:
            taken = first[: first.index(event) + 1]
            assert heard(taken + await read_to(bus, head, event["seq"])) == said


async def test_a_reader_that_comes_after_retention_is_incomplete(tmp_path: Path) -> None:
    async with life(tmp_path / "pool.db", ring=2000, events=100) as (bus, store):
        begin = bus.head
        for number in range(1000):
            bus.publish("a", "note", {"n": number})
        await store.flush()
    async with life(tmp_path / "pool.db", events=100) as (bus, _):
        cursor = bus.open_cursor(since=begin)
        events = await take(cursor)
        assert events[-1]["data"] == {"n": 999}
        assert len(events) < 1000
        assert not cursor.complete
