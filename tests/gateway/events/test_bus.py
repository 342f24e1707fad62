"""Publishing: numbers, the commit gate, handlers, eviction, the end."""

import logging
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from errors import UsageError
from gateway.events.bus import EventBus
from gateway.settings import EventSettings
from tests.gateway.events.stand_in import MemoryStore, open_bus, raws, take
from wire.messages import EventEnvelope
from wire.units import ByteCount

# --- numbers and rows -------------------------------------------------------------------------------------------------


async def test_every_event_and_every_piece_has_the_next_seq_and_only_events_are_written_at_once() -> None:
    store = MemoryStore(first_seq=100)
    async with open_bus(store) as bus:
        cursor = bus.open_cursor()
        assert bus.publish("a", "tool:start", {"n": 1}, run_id="r") == 100
        bus.publish_text("b", "text_chunk", raws("x", "y"), run_id="r")
        (row,) = store.rows
        assert (row.seq, row.session, row.channel, row.type) == (100, "a", "progress", "tool:start")
        assert (row.data, row.run_id, row.ts) == (b'{"n":1}', "r", 1.5)
        assert bus.publish("a", "note") == 103
        assert store.noted == bus.head == 103
        assert [(each["seq"], each["session"], each.get("data")) for each in await take(cursor)] == [
            *((100, "a", {"n": 1}), (101, "b", {"delta": "x"}), (102, "b", {"delta": "y"}), (103, "a", None))
        ]


async def test_what_cannot_be_encoded_is_refused_before_it_has_a_number(bus: EventBus) -> None:
    with pytest.raises(TypeError):
        bus.publish("a", "note", object())
    with pytest.raises(UsageError, match="no JSON string"):
        bus.publish_text("a", "text_chunk", [msgspec.Raw(b'"x\ny"')], run_id=None)
    bus.publish_text("a", "text_chunk", [], run_id=None)
    assert bus.head == 0


# --- the commit gate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["permission_required", "run:accepted", "run:start", "done", "alert", "exec_exit"])
async def test_a_durable_event_and_what_follows_are_seen_after_the_commit(
    bus: EventBus, store: MemoryStore, type_: str
) -> None:
    store.hold_commits()
    cursor, heard = bus.open_cursor(), list[int]()
    if type_ == "permission_required":
        bus.on(type_, lambda event: heard.append(event.seq))
    bus.publish("a", "before")
    bus.publish("a", type_)
    bus.publish_text("a", "text_chunk", raws("x"), run_id=None)
    await settle()
    assert (bus.head, heard) == (1, [])
    assert [each["type"] for each in await take(cursor)] == ["before"]
    store.let_commit()
    await settle()
    assert [each["type"] for each in await take(cursor)] == [type_, "text_chunk"]
    assert heard == ([2] if type_ == "permission_required" else [])


async def test_events_that_come_during_one_commit_share_the_next(bus: EventBus, store: MemoryStore) -> None:
    store.hold_commits()
    bus.publish("a", "ui_request")
    await settle()
    for _ in range(100):
        bus.publish("a", "ui_request")
    assert store.flushes == 1
    store.let_commit()
    await settle()
    assert (bus.head, store.flushes) == (101, 2)


async def test_a_commit_does_not_show_what_was_promised_after_it_had_begun(bus: EventBus, store: MemoryStore) -> None:
    store.hold_commits()
    bus.publish("a", "ui_request")
    bus.publish("a", "note")
    await settle()
    second = bus.publish("a", "ui_request")
    first_commit, store.commits = store.commits, trio.Event()
    first_commit.set()
    await settle()
    assert bus.head == second - 1


async def test_a_task_that_waits_for_a_seq_is_woken_by_its_commit(bus: EventBus, store: MemoryStore) -> None:
    woken: list[int] = []

    async def wait_for(seq: int) -> None:
        await bus.wait_visible(seq)
        woken.append(seq)

    async with trio.open_nursery() as nursery:
        store.hold_commits()
        seqs = [bus.publish("a", "ui_request") for _ in range(3)]
        for seq in (*reversed(seqs), 5):
            nursery.start_soon(wait_for, seq)
        await settle()
        assert woken == []
        store.let_commit()
        await settle()
        assert sorted(woken) == seqs
        await bus.wait_visible(1)
        bus.publish("a", "x")
        bus.publish("a", "y")
    assert sorted(woken) == [*seqs, 5]


async def test_steps_that_follow_each_other_at_once_share_a_commit(bus: EventBus, store: MemoryStore) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bus.wait_visible, bus.publish("a", "run:accepted"))
        for step in ("state_changed", "run:start"):
            await trio.lowlevel.checkpoint()
            bus.publish("a", step)
    assert store.flushes == 1


async def test_steps_that_never_end_do_not_keep_the_first_one_waiting(bus: EventBus, store: MemoryStore) -> None:
    first = bus.publish("a", "run:accepted")
    for _ in range(20):
        await trio.lowlevel.checkpoint()
        bus.publish("a", "state_changed")
    assert bus.head >= first
    assert store.flushes >= 1


@pytest.mark.parametrize(
    ("sessions", "is_quick", "is_seen"), [("aaaa", True, True), ("aaba", True, False), ("aaaa", False, False)]
)
async def test_the_last_step_of_the_only_session_at_work_is_committed_at_once_where_the_disk_is_quick(
    bus: EventBus, store: MemoryStore, sessions: str, *, is_quick: bool, is_seen: bool
) -> None:
    if not is_quick:
        store.hold_commits()
    seq = [bus.publish(session, "ui_request") for session in sessions][-1]
    seen: list[int] = []
    bus.call_when_visible(seq, lambda: seen.append(bus.head))
    bus.call_when_visible(seq, lambda: seen.append(bus.head), is_last=True)
    assert (seen, store.flushes) == ([seq, seq] if is_seen else [], is_seen)
    store.let_commit()
    await bus.wait_visible(seq, is_last=True)
    assert (seen, store.flushes) == ([seq, seq], 1)


async def test_a_degraded_store_lets_everything_be_seen_at_once(bus: EventBus, store: MemoryStore) -> None:
    store.degrade(now=True)
    assert bus.publish("a", "ui_request") == bus.head
    store.degrade(now=False)
    store.hold_commits()
    assert bus.publish("a", "ui_request") == bus.head + 1


@pytest.mark.parametrize("way", ["the commit fails", "the next event finds it"])
async def test_the_gate_opens_for_all_that_waits_when_the_store_degrades(
    bus: EventBus, store: MemoryStore, way: str
) -> None:
    store.hold_commits()
    bus.publish("a", "ui_request")
    await settle()
    if way == "the commit fails":
        bus.publish("a", "ui_request")
        store.degrade(now=True)
        await settle()
    else:
        store.is_degraded = True
        bus.publish("a", "error")
    assert (bus.head, store.flushes) == (2, 1)


# --- handlers ---------------------------------------------------------------------------------------------------------


async def test_a_handler_gets_the_events_of_its_type_until_it_is_undone(bus: EventBus) -> None:
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
        *((1, "a", "r", msgspec.Raw(b'{"n":1}')), (3, "b", None, msgspec.Raw(b"null")))
    ]
    assert bus.statistics().handlers == 0


async def test_a_handler_that_raises_is_logged_and_the_next_one_called(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def bad(event: EventEnvelope) -> None:
        raise RuntimeError("no")

    bus.on("note", bad)
    bus.on("note", lambda event: heard.append(event.seq))
    with caplog.at_level(logging.ERROR):
        assert bus.publish("a", "note") == 1
    assert heard == [1]
    assert "a handler of note events raised at seq 1" in caplog.text
    assert bus.statistics().handler_failures == 1


async def test_what_a_handler_publishes_is_heard_after_what_it_was_called_for(bus: EventBus) -> None:
    heard: list[int] = []

    def answer(event: EventEnvelope) -> None:
        if event.seq == 1:
            bus.publish("a", "note")

    bus.on("note", answer)
    bus.on("note", lambda event: heard.append(event.seq))
    bus.publish("a", "note")
    assert heard == [1, 2]


@pytest.mark.parametrize(("undone", "left"), [(0, [1]), (1, [])], ids=["itself", "the next one"])
async def test_a_handler_may_undo_a_handler_of_the_same_event(bus: EventBus, undone: int, left: list[int]) -> None:
    heard: list[int] = []
    undos: list[Any] = []
    undos.append(bus.on("note", lambda _: undos[undone]()))
    undos.append(bus.on("note", lambda event: heard.append(event.seq)))
    bus.publish("a", "note")
    assert heard == left


@pytest.mark.parametrize("type_", ["text_chunk", "tool:start", "done"])
async def test_progress_has_no_handlers(bus: EventBus, type_: str) -> None:
    with pytest.raises(UsageError, match="cursor"):
        bus.on(type_, lambda _: None)


# --- eviction and the end ---------------------------------------------------------------------------------------------


async def test_a_full_ring_moves_its_oldest_text_to_the_store(small_bus: EventBus, store: MemoryStore) -> None:
    for number in range(200):
        small_bus.publish_text("a", "text_chunk", raws(f"{number} "), run_id="r")
    figures = small_bus.statistics()
    assert figures.ring_bytes <= 20_000
    assert 0 < figures.snapshots == len(store.rows) < 40
    assert store.rows[-1].seq == figures.ring_floor < 200
    assert figures.text_pieces == 200


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
        *((2, "text_snapshot"), (3, "ui_request"), (4, "done"), (5, "think_snapshot"))
    ]
    assert bus.statistics().ring_bytes == 0


async def test_the_figures_tell_what_is_there(bus: EventBus, store: MemoryStore) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bus.open_cursor(session="quiet").read)
        bus.publish("a", "note")
        bus.publish_text("b", "text_chunk", raws("x", "y"), run_id=None)
        store.hold_commits()
        bus.publish("a", "ui_request")
        await settle()
        figures = bus.statistics()
        assert (figures.head, figures.last_seq, figures.unseen, figures.sleeping) == (3, 4, 1, 1)
        assert (figures.events, figures.text_pieces, figures.ring_sessions, figures.ring_floor) == (2, 2, 2, 0)
        nursery.cancel_scope.cancel()


async def test_a_bus_knows_at_its_start_and_with_each_commit_what_retention_has_left() -> None:
    store = MemoryStore(first_seq=50)
    store.oldest_seq = 20
    bus = EventBus(store, EventSettings(ring=ByteCount(1000)), first_seq=50)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        assert [bus.open_cursor(since=since).complete for since in (18, 19, 49, 50)] == [False, True, True, False]
        bus.publish("a", "note")
        store.drop_below(51)
        bus.publish("a", "ui_request")
        await settle()
        assert [bus.open_cursor(since=since).complete for since in (49, 50)] == [False, True]
        nursery.cancel_scope.cancel()
