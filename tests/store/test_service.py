import logging
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from errors import PoolClosed
from store.records import StoreUnusable
from store.settings import StoreSettings
from store.store import Store, open_store
from tests.store.disks import Disk, table
from tests.store.rows import event, events, run, session
from tests.store.stores import FULL, Troubles, a_store, hung, stored
from wire.units import Seconds


async def test_what_was_flushed_is_in_the_file(path: Path) -> None:
    async with a_store(path) as store:
        store.put_session(session("a"))
        store.put_run(run("r"))
        store.put_events(events(1, 4))
        assert await store.flush()
        assert stored(path) == [1, 2, 3]
        assert table(path, "SELECT key FROM sessions") == [("a",)]
        assert table(path, "SELECT run_id FROM runs") == [("r",)]
        figures = store.statistics()
        assert (figures.rows_waiting, figures.bytes_waiting, figures.rows_written) == (0, 0, 5)
        assert (figures.degraded, figures.lost, figures.last_error) == (False, 0, None)


async def test_the_next_life_has_what_this_one_left(path: Path) -> None:
    async with a_store(path) as store:
        for key in "abc":
            store.put_session(session(key))
            store.put_run(run(key))
        store.delete_session("b")
        store.delete_runs([("p", "s", "a"), ("p", "s", "b")])
        store.put_run(run("a", body_hash="again"))
    async with a_store(path) as store:
        assert {row.key for row in store.loaded.sessions} == {"a", "c"}
        assert [(row.run_id, row.body_hash) for row in store.loaded.runs] == [("c", "h"), ("a", "again")]
        assert store.loaded.was_clean
        del store.loaded
        assert not hasattr(store, "loaded")


async def test_what_is_put_together_is_one_commit_and_keeps_its_order_among_the_rest(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        before = disk.commits
        with store.transaction():
            store.put_run(run("r"))
            await trio.to_thread.run_sync(lambda: None)  # nobody may; the writer would have had its chance
            with store.transaction():
                store.put_events([event(1)])
            store.put_document("job", "a", b"1")
            assert not store.commit()
            assert disk.commits == before
            store.record_seq(100_000)
        store.put_run(run("r", body_hash="after"))
        assert await store.flush()
        assert table(path, "SELECT body_hash FROM runs") == [("after",)]
        assert table(path, "SELECT key, body FROM documents") == [("a", b"1")]
        assert stored(path) == [1]
        assert disk.commits - before <= 2


async def test_each_commit_waits_for_the_disk_itself_where_that_is_set_also_after_an_error(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    settings = StoreSettings(retry=Seconds(0.01), synchronous="full")
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        disk.error = FULL
        store.put_events([event(1)])
        assert not await store.flush()
        disk.error = None
        await troubles.next()
        assert (await troubles.next())[0] == "store_recovered"
    opened_first, *later = [sql for sql in disk.statements if "synchronous" in sql]
    assert (opened_first, {*later}) == ("PRAGMA synchronous = normal", {"PRAGMA synchronous = full"})
    assert len(later) > 1


async def test_flushing_with_nothing_to_write_asks_nothing_of_the_disk(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        store.put_events([event(1)])
        await store.flush()
        before = disk.commits
        assert await store.flush()
        assert disk.commits == before


async def test_all_who_flush_while_a_commit_is_under_way_share_the_next_one(path: Path, disk: Disk) -> None:
    settings = StoreSettings(stall=Seconds(1000))
    async with a_store(path, disk=disk, settings=settings) as store, trio.open_nursery() as nursery:
        before = disk.commits
        done = []

        async def put_and_flush(seq: int) -> None:
            store.put_events([event(seq)])
            assert await store.flush()
            done.append(seq)

        disk.answers.clear()
        nursery.start_soon(put_and_flush, 1)
        await hung(disk)
        for seq in range(2, 101):
            nursery.start_soon(put_and_flush, seq)
        await trio.testing.wait_all_tasks_blocked()
        assert store.statistics().rows_waiting == 100
        disk.answers.set()
        nursery.cancel_scope.deadline = trio.current_time() + 10
    assert sorted(done) == list(range(1, 101))
    assert disk.commits - before == 3  # the last one marks the end


async def test_rows_that_the_database_cannot_hold_are_told_and_left_out(path: Path, troubles: Troubles) -> None:
    async with a_store(path, troubles=troubles) as store:
        store.put_events([event(1), event(2, session="\ud800"), event(3)])
        assert await store.flush()
        kind, details = await troubles.next()
        assert (kind, details["rows"]) == ("store_rows_refused", 1)
        assert "UnicodeEncodeError" in details["errors"][0]
        assert (store.statistics().lost, store.is_degraded) == (1, False)
    assert stored(path) == [1, 3]


async def test_old_events_are_deleted_as_new_ones_come(path: Path) -> None:
    async with a_store(path, settings=StoreSettings(events=100)) as store:
        assert store.oldest_seq == 0
        store.put_events(events(1, 1001))
        await store.flush()
    assert stored(path) == list(range(901, 1001))
    async with a_store(path) as store:
        assert store.oldest_seq == 901


async def test_a_reservation_is_durable_ahead_of_the_seqs_given_out(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        reserved = "SELECT value FROM meta WHERE name = 'reserved'"
        assert table(path, reserved) == [(10_000,)]
        before = disk.commits
        for seq in range(1, 5001):
            store.record_seq(seq)
        assert disk.commits == before
        store.record_seq(5001)
        await store.flush()
        assert table(path, reserved) == [(20_000,)]
        store.record_seq(123_456)
        await store.flush()
        assert table(path, reserved) == [(140_000,)]
    async with a_store(path) as store:
        assert store.loaded.first_seq == 140_001


async def test_reading_sees_all_that_was_put_before(path: Path) -> None:
    async with a_store(path) as store:
        for seq in range(1, 101):
            store.put_events([event(seq, session=f"s{seq % 3}")])
            found = await store.read_events(0, 2**60, session=f"s{seq % 3}", limit=1000)
            assert found[-1].seq == seq
        assert [row.seq for row in await store.read_events(10, 15, session=None, limit=3)] == [11, 12, 13]
        assert await store.read_events(100, 2**60, session=None, limit=10) == []


async def test_reading_sees_what_the_disk_refuses_in_its_place(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        store.put_events([event(seq) for seq in (2, 4, 6, 20)])
        await store.flush()
        disk.error = FULL
        store.put_events([event(seq) for seq in (7, 5, 3)] + [event(8, session="other")])
        assert [row.seq for row in await store.read_events(2, 20, session="s", limit=100)] == [3, 4, 5, 6, 7]
        assert [row.seq for row in await store.read_events(0, 99, session=None, limit=4)] == [2, 3, 4, 5]
        disk.error = None


async def test_a_file_that_cannot_be_read_is_told(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        store.put_events([event(1)])
        disk.refused, disk.error = ("SELECT json",), sqlite3.OperationalError("disk I/O error")
        with pytest.raises(StoreUnusable, match="cannot be read: disk I/O error"):
            await store.read_events(0, 9, session=None, limit=1)
        disk.error = None
        assert len(await store.read_events(0, 9, session=None, limit=1)) == 1


async def test_a_store_that_is_being_closed_takes_nothing_more_into_what_it_writes_last(path: Path, disk: Disk) -> None:
    leave = trio.Event()

    async def serve(task_status: trio.TaskStatus[Store]) -> None:
        async with a_store(path, disk=disk) as store:
            task_status.started(store)
            await leave.wait()

    async with trio.open_nursery() as nursery:
        store: Store = await nursery.start(serve)
        disk.answers.clear()
        store.put_events([event(1)])
        store.commit()
        store.put_events([event(2)])
        leave.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(PoolClosed, match="store is closed"):
            store.put_events([event(3)])
        disk.answers.set()
    assert stored(path) == [1, 2]


async def test_a_store_may_be_given_any_time_to_close(path: Path) -> None:
    async with a_store(path, settings=StoreSettings(close_timeout=Seconds(30 * 86_400))) as store:
        store.put_events([event(1)])
    assert stored(path) == [1]


async def test_a_closed_store_takes_nothing_more(path: Path) -> None:
    async with a_store(path) as store:
        pass
    with pytest.raises(PoolClosed, match="store is closed"):
        store.put_events([event(1)])
    assert await store.flush()


@pytest.mark.parametrize("end", ["an error", "cancelled"])
async def test_what_was_put_before_an_error_or_a_cancellation_is_written(path: Path, end: str) -> None:
    with suppress(KeyError), trio.CancelScope() as scope:
        async with a_store(path) as store:
            store.put_events([event(1)])
            if end == "an error":
                raise KeyError
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert stored(path) == [1]


async def test_the_end_of_a_refusing_disk_is_tried_once_more(path: Path, disk: Disk) -> None:
    settings = StoreSettings(retry=Seconds(1000))
    async with a_store(path, disk=disk, settings=settings) as store:
        disk.error = FULL
        for seq in range(1, 4):
            store.put_events([event(seq)])
            assert not await store.flush()
        disk.error = None
    assert stored(path) == [1, 2, 3]
    async with a_store(path) as store:
        assert store.loaded.was_clean


async def test_what_cannot_be_written_at_the_end_is_logged_and_the_next_life_knows(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_store(path, disk=disk) as store:
        disk.error = FULL
        store.put_events(events(1, 4))
        assert not await store.flush()
    disk.error = None
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"3 rows could not be written to {path} and are lost"]
    async with a_store(path) as store:
        assert (store.loaded.was_clean, store.loaded.first_seq) == (False, 10_001 + 1_000_000_000)


async def test_a_new_file_in_a_damaged_ones_place_has_none_of_its_events(path: Path) -> None:
    await trio.Path(path).write_bytes(b"not a database")
    async with a_store(path) as store:
        first = store.loaded.first_seq
        assert store.oldest_seq == first
        store.put_events([event(first)])
        assert [row.seq for row in await store.read_events(0, 2**60, session=None, limit=9)] == [first]


async def test_waiting_for_a_thread_is_no_stall_though_the_clock_of_a_test_jumps(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_store(path, StoreSettings(), on_trouble=Troubles()) as store:
        started = trio.current_time()
        for seq in range(1, 20):
            store.put_events([event(seq)])
            assert await store.flush()
            await store.wait_room()
        assert not store.is_degraded
        assert trio.current_time() - started < StoreSettings().stall
    assert stored(path) == list(range(1, 20))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (sqlite3.OperationalError("disk I/O error"), "store maintenance failed: disk I/O error"),
        (KeyError("a defect"), "internal error in store maintenance"),
    ],
)
async def test_maintenance_that_fails_is_logged_and_costs_nothing_else(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    async with a_store(path, disk=disk, settings=StoreSettings(events=10)) as store:
        disk.refused, disk.error = ("DELETE FROM events",), error
        for start in (1, 21):
            store.put_events(events(start, start + 10))
            assert await store.flush()
    assert line in caplog.text
    assert stored(path) == [*range(1, 11), *range(21, 31)]
