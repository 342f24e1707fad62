"""Cursors: waiting without polling, filters, falling behind, retention, cancellation."""

from typing import Any

import pytest
import trio
import trio.testing

from errors import SubscriberBehind
from gateway.events import cursor as replay
from gateway.events.bus import EventBus
from tests.gateway.events.stand_in import MemoryStore, open_bus, raws, take, take_all
from wire.events import EventChannel

MONITOR, CONTROL, PROGRESS = EventChannel.MONITOR, EventChannel.CONTROL, EventChannel.PROGRESS

RING = 20_000


def flood(bus: EventBus, session: str = "loud", count: int = 200) -> None:
    """More than ``RING`` bytes."""
    for number in range(count):
        bus.publish(session, "noise", {"n": number})


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_a_cursor_from_now_on_waits_for_what_comes() -> None:
    async with open_bus() as bus, trio.open_nursery() as nursery:
        bus.publish("a", "old")
        cursor, found = bus.open_cursor(), list[dict[str, Any]]()

        async def read() -> None:
            found.extend(await take(cursor))

        nursery.start_soon(read)
        await settle()
        assert found == []
        bus.publish("a", "new")
        await settle()
        assert [each["type"] for each in found] == ["new"]
        assert cursor.position == bus.head


async def test_only_those_wake_whom_an_event_concerns() -> None:
    woken: list[str | None] = []

    async def sleep(session: str | None) -> None:
        await bus.notifier.wait(session)
        woken.append(session)

    async with open_bus() as bus, trio.open_nursery() as nursery:
        for number in range(10_000):
            nursery.start_soon(sleep, f"s{number}")
        nursery.start_soon(sleep, None)
        nursery.start_soon(sleep, "s7")
        await settle()
        assert bus.statistics().sleeping == 10_002
        bus.publish("s7", "note")
        await settle()
        assert sorted(woken, key=str) == [None, "s7", "s7"]
        nursery.cancel_scope.cancel()
    assert bus.statistics().sleeping == 0


async def test_a_reader_that_gives_up_leaves_no_trace_and_harms_no_other() -> None:
    async with open_bus() as bus, trio.open_nursery() as nursery:
        kept = bus.open_cursor(session="a")
        found: list[dict[str, Any]] = []

        async def read() -> None:
            found.extend(await take(kept))

        nursery.start_soon(read)
        with trio.move_on_after(0.01):
            await bus.open_cursor(session="a").read()
        with trio.move_on_after(0.01):
            await bus.open_cursor(session="b").read()
        assert bus.statistics().sleeping == 1
        assert list(bus.notifier._waiters) == ["a"]
        bus.publish("a", "note")
        await settle()
        assert len(found) == 1


async def test_a_cancelled_take_has_taken_nothing() -> None:
    async with open_bus() as bus:
        cursor = bus.open_cursor()
        bus.publish("a", "note")
        with trio.CancelScope() as scope:
            scope.cancel()
            await cursor.read()
        assert cursor.position == 0
        assert len(await take(cursor)) == 1


async def test_a_cursor_that_sleeps_is_not_overtaken_by_others(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with open_bus(store, ring=RING) as bus, trio.open_nursery() as nursery:
        cursor, found = bus.open_cursor(session="quiet"), list[dict[str, Any]]()

        async def read() -> None:
            found.extend(await take(cursor))

        with trio.move_on_after(1):
            await cursor.read()
        for _ in range(3):
            nursery.start_soon(read)
            await settle()
            flood(bus)
            bus.publish("quiet", "note")
            await settle()
        assert len(found) == 3
        assert store.reads == 0


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ring", "store"])
@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"session": "a"}, [1, 2, 3, 5]),
        ({"run_id": "r1"}, [2, 3, 6]),
        ({"session": "a", "run_id": "r1"}, [2, 3]),
        ({"channels": frozenset({CONTROL})}, [4]),
        ({"channels": frozenset({MONITOR, PROGRESS}), "session": "a"}, [1, 2, 3, 5]),
        ({"kinds": frozenset({"note", "ui_request"})}, [1, 4]),
        ({"kinds": frozenset({"text_chunk"})}, [2, 3]),
        ({"kinds": frozenset({"text_snapshot", "think_chunk"})}, [2, 3, 6]),
        ({"kinds": frozenset({"other"})}, []),
    ],
)
async def test_a_reader_gets_what_its_filter_lets_through(
    wanted: dict[str, Any], seqs: list[int], place: str, autojump_clock: trio.abc.Clock
) -> None:
    async with open_bus() as bus:
        bus.publish("a", "note")
        bus.publish_text("a", "text_chunk", raws("x", "y"), run_id="r1")
        bus.publish("b", "ui_request")
        bus.publish("a", "tool:start", run_id="r2")
        bus.publish_text("b", "think_chunk", raws("z"), run_id="r1")
        await settle()
        if place == "store":
            bus.close()
        cursor = bus.open_cursor(**wanted, since=0)
        found: list[int] = []
        for each in await take_all(cursor):
            first = each["data"]["from_seq"] if each["type"].endswith("_snapshot") else each["seq"]
            found += range(first, each["seq"] + 1)
        assert found == seqs
        assert cursor.position == 6


# --- from the store to the ring ---------------------------------------------------------------------------------------


async def test_a_reader_goes_from_the_store_to_the_ring_without_a_gap(autojump_clock: trio.abc.Clock) -> None:
    async with open_bus(ring=RING) as bus:
        for number in range(500):
            bus.publish("a" if number % 3 else "b", "note", {"n": number})
        for session, expected in ((None, 500), ("a", 333)):
            cursor = bus.open_cursor(session=session, since=0)
            found = await take_all(cursor, max_bytes=3000)
            assert len(found) == expected
            assert [each["seq"] for each in found] == sorted({each["seq"] for each in found})
            assert cursor.complete


async def test_a_gap_between_two_lives_costs_one_read() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        bus.publish("a", "old")
    store = store.next_life(gap=1_000_000_000)
    async with open_bus(store) as bus:
        bus.publish("a", "new")
        cursor = bus.open_cursor(since=0)
        assert [each["seq"] for each in await take(cursor)] == [1]
        assert [each["seq"] for each in await take(cursor)] == [1_000_000_002]
        assert store.reads == 1


async def test_a_replay_reads_in_proportion_to_what_it_gives(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with open_bus(store, ring=1000) as bus:
        flood(bus, count=2000)
        assert len(await take_all(bus.open_cursor(since=0), max_bytes=1000)) == 2000
        assert store.reads <= 3 * 2000 / replay._PAGE_ROWS
        before = store.reads
        assert len(await take_all(bus.open_cursor(session="loud", since=0), max_bytes=1000)) == 2000
        assert store.reads - before <= 2 * 2000 / replay._PAGE_ROWS


# --- behind -----------------------------------------------------------------------------------------------------------


async def test_a_reader_that_had_caught_up_and_falls_out_of_the_ring_is_cut_off(autojump_clock: trio.abc.Clock) -> None:
    async with open_bus(ring=RING) as bus:
        cursor = bus.open_cursor()
        bus.publish("a", "note")
        assert len(await take(cursor)) == 1
        flood(bus)
        with pytest.raises(SubscriberBehind, match="since = bookmark") as caught:
            await cursor.read()
        assert caught.value.bookmark == cursor.position == 1
        resumed = bus.open_cursor(since=caught.value.bookmark)
        assert [each["seq"] for each in await take_all(resumed)] == list(range(2, 202))


async def test_a_reader_that_replays_is_never_too_slow(autojump_clock: trio.abc.Clock) -> None:
    async with open_bus(ring=RING) as bus:
        flood(bus)
        cursor, found = bus.open_cursor(since=0), 0
        for _ in range(10):
            found += len(await take(cursor, max_bytes=1000))
            flood(bus)
        found += len(await take_all(cursor))
        assert found == 2200


async def test_others_do_not_cut_off_a_reader_that_lost_nothing(autojump_clock: trio.abc.Clock) -> None:
    async with open_bus(ring=RING) as bus:
        cursor = bus.open_cursor(session="quiet")
        bus.publish("quiet", "note")
        assert len(await take(cursor)) == 1
        flood(bus)
        bus.publish("quiet", "note")
        assert len(await take(cursor)) == 1
        flood(bus, "quiet")
        with pytest.raises(SubscriberBehind):
            await cursor.read()


# --- retention --------------------------------------------------------------------------------------------------------


async def test_a_reader_is_told_that_events_it_wanted_are_gone(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with open_bus(store, ring=1000) as bus:
        flood(bus, count=100)
        store.drop_below(50)
        cursor = bus.open_cursor(since=10)
        assert [each["seq"] for each in await take_all(cursor)] == list(range(50, 101))
        assert not cursor.complete
        exact = bus.open_cursor(since=49)
        assert [each["seq"] for each in await take_all(exact)] == list(range(50, 101))
        assert exact.complete
        assert not bus.open_cursor(since=10).complete
        assert bus.open_cursor(since=49).complete


async def test_retention_that_overtakes_a_replay_is_told_too(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with open_bus(store, ring=1000) as bus:
        flood(bus, count=1000)
        cursor = bus.open_cursor(session="loud", since=0)
        first = await take(cursor, max_bytes=1000)
        was_complete = cursor.complete
        store.drop_below(900)
        rest = await take_all(cursor)
        assert len(first) + len(rest) < 1000
        assert (was_complete, cursor.complete) == (True, False)


async def test_a_bookmark_of_another_supervisor_begins_at_the_head() -> None:
    async with open_bus() as bus:
        bus.publish("a", "note")
        cursor = bus.open_cursor(since=10**12)
        assert (cursor.position, cursor.complete) == (1, False)
        assert bus.open_cursor(since=-5).position == 0
