"""Cursors: waiting without polling, run filters, falling behind, retention, cancellation."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from errors import SubscriberBehind
from gateway.events import cursor as replay
from gateway.events.bus import EventBus
from gateway.events.cursor import EventFilter
from tests.gateway.events.stand_in import MemoryStore, flood, open_bus, take, take_all
from wire.events import EventChannel
from wire.messages import EventEnvelope

MONITOR, CONTROL, PROGRESS = EventChannel.MONITOR, EventChannel.CONTROL, EventChannel.PROGRESS

# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_only_readers_that_an_event_concerns_are_woken(bus: EventBus) -> None:
    woken: list[str | None] = []

    async def sleep(session: str | None) -> None:
        await bus._stream.notifier.wait(session)
        woken.append(session)

    async with trio.open_nursery() as nursery:
        for session in (*(f"s{number}" for number in range(1000)), None, "s7"):
            nursery.start_soon(sleep, session)
        await settle()
        assert bus.statistics().sleeping == 1002
        bus.publish("s7", "note")
        await settle()
        assert sorted(woken, key=str) == [None, "s7", "s7"]
        nursery.cancel_scope.cancel()
    assert bus.statistics().sleeping == 0


class _StepCount(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task) -> None:
        self._task = task
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += task is self._task


async def test_a_reader_that_keeps_pace_runs_once_an_event(bus: EventBus, nursery: trio.Nursery) -> None:
    cursor, readers = bus.open_cursor(), list[trio.lowlevel.Task]()

    async def follow() -> None:
        readers.append(trio.lowlevel.current_task())
        while True:
            await cursor.read()

    nursery.start_soon(follow)
    await settle()
    counted = _StepCount(readers[0])
    trio.lowlevel.add_instrument(counted)
    for number in range(10):
        bus.publish("a", "note", {"n": number})
        await settle()
    trio.lowlevel.remove_instrument(counted)
    assert (cursor.position, counted.steps) == (bus.head, 10)


async def test_a_reader_that_gives_up_leaves_no_trace_and_the_others_wait_on(bus: EventBus) -> None:
    bus.publish("a", "old")
    kept, found = bus.open_cursor(session="a"), list[dict[str, Any]]()

    async def read() -> None:
        found.extend(await take(kept))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for session in "ab":
            with trio.move_on_after(0.01):
                await bus.open_cursor(session=session).read()
        assert (bus.statistics().sleeping, list(bus._stream.notifier._waiters), found) == (1, ["a"], [])
        bus.publish("a", "note")
        await settle()
        assert [each["type"] for each in found] == ["note"]
        assert kept.position == bus.head


async def test_a_cancelled_take_has_taken_nothing(bus: EventBus) -> None:
    cursor = bus.open_cursor()
    bus.publish("a", "note")
    with trio.CancelScope() as scope:
        scope.cancel()
        await cursor.read()
    assert cursor.position == 0
    assert len(await take(cursor)) == 1


async def test_a_cursor_that_sleeps_is_not_overtaken_by_others(small_bus: EventBus, store: MemoryStore) -> None:
    cursor, found = small_bus.open_cursor(session="quiet"), list[dict[str, Any]]()

    async def read() -> None:
        found.extend(await take(cursor))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read)
            await settle()
            flood(small_bus)
            small_bus.publish("quiet", "note")
            await settle()
    assert (len(found), store.reads) == (3, 0)


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "run_id", "seen"),
    [
        *(("error", "r1", True), ("error", "r2", False), ("error", None, False), ("agent_resumed", None, True)),
        *(("exec_exit", None, True), ("exec_exit", "r2", False), ("alert", None, True), ("heartbeat", None, False)),
    ],
)
def test_a_reader_of_a_run_also_gets_what_its_session_does_beside_all_runs(
    kind: str, run_id: str | None, *, seen: bool
) -> None:
    event = EventEnvelope(1, 0.0, "ada", MONITOR, kind, msgspec.Raw(b"{}"), run_id)
    assert EventFilter(session="ada", run_id="r1").admits(event) is seen


# --- from the store to the ring ---------------------------------------------------------------------------------------


async def test_a_gap_between_two_lives_costs_one_read() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        bus.publish("a", "old")
    store = store.next_life(gap=1_000_000_000)
    async with open_bus(store) as bus:
        bus.publish("a", "new")
        cursor = bus.open_cursor(since=0)
        assert [(await take(cursor))[0]["seq"] for _ in range(2)] == [1, 1_000_000_002]
        assert store.reads == 1


@pytest.mark.parametrize("session", [None, "loud"])
async def test_a_replay_reads_in_proportion_to_what_it_gives(
    small_bus: EventBus, store: MemoryStore, session: str | None, autojump_clock: trio.abc.Clock
) -> None:
    flood(small_bus, count=2000)
    cursor = small_bus.open_cursor(session=session, since=0)
    assert len(await take_all(cursor, max_bytes=1000)) == 2000
    assert cursor.complete
    assert store.reads <= 3 * 2000 / replay._PAGE_ROWS


# --- behind -----------------------------------------------------------------------------------------------------------


async def test_a_reader_that_had_caught_up_and_falls_out_of_the_ring_is_cut_off(
    small_bus: EventBus, autojump_clock: trio.abc.Clock
) -> None:
    cursor = small_bus.open_cursor()
    small_bus.publish("a", "note")
    assert len(await take(cursor)) == 1
    flood(small_bus)
    with pytest.raises(SubscriberBehind, match="since = bookmark") as caught:
        await cursor.read()
    assert caught.value.bookmark == cursor.position == 1
    resumed = small_bus.open_cursor(since=caught.value.bookmark)
    assert [each["seq"] for each in await take_all(resumed)] == list(range(2, 202))


async def test_a_reader_that_replays_is_never_too_slow(small_bus: EventBus, autojump_clock: trio.abc.Clock) -> None:
    flood(small_bus)
    cursor, found = small_bus.open_cursor(since=0), 0
    for _ in range(10):
        found += len(await take(cursor, max_bytes=1000))
        flood(small_bus)
    assert found + len(await take_all(cursor)) == 2200


async def test_others_do_not_cut_off_a_reader_that_lost_nothing(small_bus: EventBus) -> None:
    cursor = small_bus.open_cursor(session="quiet")
    for _ in range(2):
        small_bus.publish("quiet", "note")
        assert len(await take(cursor)) == 1
        flood(small_bus)
    flood(small_bus, "quiet")
    with pytest.raises(SubscriberBehind):
        await cursor.read()


# --- retention --------------------------------------------------------------------------------------------------------


async def test_a_reader_learns_that_events_it_wanted_are_gone(
    store: MemoryStore, autojump_clock: trio.abc.Clock
) -> None:
    async with open_bus(store, ring=1000) as bus:
        flood(bus, count=100)
        store.drop_below(50)
        for since, complete in ((10, False), (49, True)):
            cursor = bus.open_cursor(since=since)
            assert [each["seq"] for each in await take_all(cursor)] == list(range(50, 101))
            assert cursor.complete is complete
            assert bus.open_cursor(since=since).complete is complete


async def test_retention_that_overtakes_a_replay_is_noticed_too(
    store: MemoryStore, autojump_clock: trio.abc.Clock
) -> None:
    async with open_bus(store, ring=1000) as bus:
        flood(bus, count=1000)
        cursor = bus.open_cursor(session="loud", since=0)
        first = await take(cursor, max_bytes=1000)
        was_complete = cursor.complete
        store.drop_below(900)
        assert len(first) + len(await take_all(cursor)) < 1000
        assert (was_complete, cursor.complete) == (True, False)


async def test_a_bookmark_of_another_supervisor_begins_at_the_head(bus: EventBus) -> None:
    bus.publish("a", "note")
    cursor = bus.open_cursor(since=10**12)
    assert (cursor.position, cursor.complete) == (1, False)
    assert bus.open_cursor(since=-5).position == 0
