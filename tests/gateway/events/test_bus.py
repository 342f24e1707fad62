"""Publishing: numbers, the commit gate, handlers, eviction, the end."""

import logging
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from errors import UsageError
from gateway.events.bus import EventBus
from gateway.settings import EventSettings
from tests.gateway.events.stand_in import MemoryStore, open_bus, raws, take, take_all
from wire.events import EventChannel
from wire.messages import EventEnvelope
from wire.units import ByteCount

MONITOR, CONTROL, PROGRESS = EventChannel.MONITOR, EventChannel.CONTROL, EventChannel.PROGRESS


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


# --- numbers and rows -------------------------------------------------------------------------------------------------


async def test_every_event_and_every_piece_has_the_next_seq() -> None:
    store = MemoryStore(first_seq=100)
    async with open_bus(store) as bus:
        cursor = bus.open_cursor()
        assert bus.publish("a", "note", {"n": 1}) == 100
        bus.publish_text("b", "text_chunk", raws("x", "y"), run_id="r")
        assert bus.publish("a", "note") == 103
        assert store.noted == bus.head == 103
        assert [(each["seq"], each["session"], each.get("data")) for each in await take(cursor)] == [
            (100, "a", {"n": 1}),
            (101, "b", {"delta": "x"}),
            (102, "b", {"delta": "y"}),
            (103, "a", None),
        ]


async def test_single_events_are_written_when_they_are_published_and_text_is_not() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        bus.publish("a", "tool:start", {"call": {}}, run_id="r")
        bus.publish_text("a", "text_chunk", raws("x"), run_id="r")
        (row,) = store.rows
        assert (row.seq, row.session, row.channel, row.type, row.data, row.run_id, row.ts) == (
            1,
            "a",
            "progress",
            "tool:start",
            b'{"call":{}}',
            "r",
            1.5,
        )


async def test_what_cannot_be_encoded_is_refused_before_it_has_a_number() -> None:
    async with open_bus() as bus:
        with pytest.raises(TypeError):
            bus.publish("a", "note", object())
        assert bus.head == 0


async def test_a_piece_that_is_no_json_string_is_refused_before_it_has_a_number() -> None:
    async with open_bus() as bus:
        with pytest.raises(UsageError, match="no JSON string"):
            bus.publish_text("a", "text_chunk", [msgspec.Raw(b'"x\ny"')], run_id=None)
        bus.publish_text("a", "text_chunk", [], run_id=None)
        assert bus.head == 0


# --- the commit gate --------------------------------------------------------------------------------------------------


async def test_a_durable_event_and_what_follows_are_seen_after_the_commit() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        cursor = bus.open_cursor()
        bus.publish("a", "before")
        bus.publish("a", "heartbeat")
        bus.publish_text("a", "text_chunk", raws("x"), run_id=None)
        await settle()
        assert bus.head == 1
        assert [each["type"] for each in await take_all_now(bus, cursor)] == ["before"]
        store.let_commit()
        await settle()
        assert [each["type"] for each in await take(cursor)] == ["heartbeat", "text_chunk"]


async def take_all_now(bus: EventBus, cursor: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while cursor.position < bus.head:
        events += await take(cursor)
    return events


@pytest.mark.parametrize("type_", ["permission_required", "run:accepted", "run:start", "done", "alert", "exec_exit"])
async def test_these_wait_for_their_commit(type_: str) -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        bus.publish("a", type_)
        await settle()
        assert bus.head == 0


async def test_events_that_come_during_one_commit_share_the_next() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        for _ in range(100):
            bus.publish("a", "ui_request")
        assert store.flushes == 1
        store.let_commit()
        await settle()
        assert (bus.head, store.flushes) == (101, 2)


async def test_a_commit_does_not_show_what_was_promised_after_it_had_begun() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        bus.publish("a", "ui_request")
        bus.publish("a", "note")
        await settle()
        second = bus.publish("a", "ui_request")
        first_commit, store.commits = store.commits, trio.Event()
        first_commit.set()
        await settle()
        assert bus.head == second - 1
        await bus.wait_visible(second - 1)


async def test_whoever_waits_for_a_seq_is_woken_by_its_commit() -> None:
    store = MemoryStore()
    settled: list[int] = []

    async def wait_for(seq: int) -> None:
        await bus.wait_visible(seq)
        settled.append(seq)

    async with open_bus(store) as bus, trio.open_nursery() as nursery:
        store.hold_commits()
        seqs = [bus.publish("a", "ui_request") for _ in range(3)]
        for seq in (*reversed(seqs), 5):
            nursery.start_soon(wait_for, seq)
        await settle()
        assert settled == []
        store.let_commit()
        await settle()
        assert sorted(settled) == seqs
        await bus.wait_visible(1)
        bus.publish("a", "x")
        bus.publish("a", "y")
    assert sorted(settled) == [*seqs, 5]


async def test_a_degraded_store_lets_everything_be_seen_at_once() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.degrade(now=True)
        seq = bus.publish("a", "ui_request")
        assert bus.head == seq
        await bus.wait_visible(seq)
        store.degrade(now=False)
        store.hold_commits()
        assert bus.publish("a", "ui_request") == bus.head + 1


async def test_a_commit_that_fails_opens_the_gate_for_what_came_meanwhile_too() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        bus.publish("a", "ui_request")
        store.degrade(now=True)
        await settle()
        assert (bus.head, store.flushes) == (2, 1)


async def test_the_gate_opens_at_once_for_what_waits_when_the_store_has_degraded() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        store.is_degraded = True
        seq = bus.publish("a", "error")
        assert bus.head == seq


# --- handlers ---------------------------------------------------------------------------------------------------------


async def test_a_handler_gets_the_events_of_its_type_until_it_is_undone() -> None:
    async with open_bus() as bus:
        heard: list[EventEnvelope] = []
        undo = bus.on("note", heard.append)
        undo_again = bus.on("note", heard.append)
        bus.publish("a", "note", {"n": 1}, run_id="r")
        bus.publish("a", "other")
        undo()
        undo()
        bus.publish("b", "note")
        undo_again()
        bus.publish("b", "note")
        assert [(each.seq, each.session, each.run_id, each.data) for each in heard[1:]] == [
            (1, "a", "r", msgspec.Raw(b'{"n":1}')),
            (3, "b", None, msgspec.Raw(b"null")),
        ]
        assert bus.statistics().handlers == 0


async def test_a_handler_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def bad(event: EventEnvelope) -> None:
        raise RuntimeError("no")

    async with open_bus() as bus:
        bus.on("note", bad)
        bus.on("note", lambda event: heard.append(event.seq))
        with caplog.at_level(logging.ERROR):
            assert bus.publish("a", "note") == 1
        assert heard == [1]
        assert "a handler of note events raised at seq 1" in caplog.text
        assert bus.statistics().handler_failures == 1


async def test_a_handler_hears_of_a_control_event_after_its_commit() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        heard: list[int] = []
        bus.on("ui_request", lambda event: heard.append(event.seq))
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        assert heard == []
        store.let_commit()
        await settle()
        assert heard == [1]


async def test_what_a_handler_publishes_is_heard_after_what_it_was_called_for() -> None:
    async with open_bus() as bus:
        heard: list[tuple[str, int]] = []

        def answer(event: EventEnvelope) -> None:
            if event.seq == 1:
                bus.publish("a", "note")

        bus.on("note", answer)
        bus.on("note", lambda event: heard.append((event.type, event.seq)))
        bus.publish("a", "note")
        assert heard == [("note", 1), ("note", 2)]


async def test_a_handler_may_undo_another_one_of_the_same_event() -> None:
    async with open_bus() as bus:
        heard: list[int] = []
        bus.on("note", lambda _: undo())
        undo = bus.on("note", lambda event: heard.append(event.seq))
        bus.publish("a", "note")
        assert heard == []


async def test_a_handler_that_undoes_itself_takes_the_event_from_nobody() -> None:
    async with open_bus() as bus:
        heard: list[int] = []
        undo = bus.on("note", lambda _: undo())
        bus.on("note", lambda event: heard.append(event.seq))
        bus.publish("a", "note")
        assert heard == [1]


@pytest.mark.parametrize("type_", ["text_chunk", "think_chunk", "tool:start", "done", "run:start", "compaction:end"])
async def test_progress_has_no_handlers(type_: str) -> None:
    async with open_bus() as bus:
        with pytest.raises(UsageError, match="cursor"):
            bus.on(type_, lambda _: None)


# --- eviction and the end ---------------------------------------------------------------------------------------------


async def test_a_full_ring_moves_its_oldest_text_to_the_store() -> None:
    store = MemoryStore()
    async with open_bus(store, ring=20_000) as bus:
        for number in range(200):
            bus.publish_text("a", "text_chunk", raws(f"{number} "), run_id="r")
        figures = bus.statistics()
        assert figures.ring_bytes <= 20_000
        assert 0 < figures.snapshots == len(store.rows) < 40
        assert store.rows[-1].seq == figures.ring_floor < 200
        assert figures.text_pieces == 200


async def test_what_waits_for_a_commit_may_leave_the_ring_and_is_still_not_seen(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with open_bus(store, ring=2000) as bus:
        everything, one = bus.open_cursor(), bus.open_cursor(session="a")
        store.hold_commits()
        bus.publish_text("a", "text_chunk", raws("1", "2"), run_id="r")
        bus.publish("b", "ui_request")
        for number in range(4, 50):
            bus.publish_text("a", "text_chunk", raws(str(number)), run_id="r")
        assert bus.statistics().ring_floor > bus.head == 2
        assert [each["data"]["text"] for each in await take_all(everything)] == ["12"]
        assert [each["data"]["text"] for each in await take_all(one)] == ["12"]
        store.let_commit()
        await settle()
        assert (await take(bus.open_cursor(since=2)))[0]["seq"] == 3
        found = await take_all(bus.open_cursor(session="a", since=2))
        assert (found[0]["data"]["from_seq"], found[-1]["seq"]) == (4, 49)


async def test_the_end_moves_everything_to_the_store_and_what_is_published_later_too() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        bus.publish_text("a", "text_chunk", raws("x", "y"), run_id="r")
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
    seq = bus.publish("a", "done", {"text": "xy"})
    await bus.wait_visible(seq)
    bus.publish_text("a", "think_chunk", raws("z"), run_id="r")
    assert [(row.seq, row.type) for row in store.rows] == [
        (2, "text_snapshot"),
        (3, "ui_request"),
        (4, "done"),
        (5, "think_snapshot"),
    ]
    assert bus.statistics().ring_bytes == 0


async def test_the_figures_tell_what_is_there() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus, trio.open_nursery() as nursery:
        cursor = bus.open_cursor(session="quiet")
        nursery.start_soon(cursor.read)
        bus.publish("a", "note")
        bus.publish_text("b", "text_chunk", raws("x", "y"), run_id=None)
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        figures = bus.statistics()
        assert (figures.head, figures.last_seq, figures.unseen, figures.sleeping) == (3, 4, 1, 1)
        assert (figures.events, figures.text_pieces, figures.ring_sessions, figures.ring_floor) == (2, 2, 2, 0)
        assert figures.ring_bytes > 0
        nursery.cancel_scope.cancel()


async def test_a_bus_starts_once_it_knows_what_retention_has_left() -> None:
    store = MemoryStore(first_seq=50)
    store.oldest = 20
    bus = EventBus(store, EventSettings(ring=ByteCount(1000)), first_seq=50)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        assert [bus.open_cursor(since=since).complete for since in (18, 19, 49, 50)] == [False, True, True, False]
        nursery.cancel_scope.cancel()


async def test_a_bus_learns_with_each_commit_what_retention_has_left() -> None:
    store = MemoryStore()
    async with open_bus(store) as bus:
        bus.publish("a", "note")
        store.drop_below(2)
        bus.publish("a", "ui_request")
        await settle()
        assert [bus.open_cursor(since=since).complete for since in (0, 1)] == [False, True]
