import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from errors import PoolClosed
from store import Store, StoreSettings, open_store
from store.failures import StoreUnusable
from tests.store.disks import Disk, table
from tests.store.rows import event, events, run, session
from wire.units import ByteCount, Seconds

FULL = sqlite3.OperationalError("database or disk is full")
SETTINGS = StoreSettings(retry=Seconds(0.01))


class Troubles:
    """What the store told, in order."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[tuple[str, dict[str, Any]]](100)

    def __call__(self, kind: str, details: dict[str, Any]) -> None:
        self._sender.send_nowait((kind, details))

    async def next(self) -> tuple[str, dict[str, Any]]:
        with trio.fail_after(10):
            return await self._receiver.receive()

    def is_empty(self) -> bool:
        return self._receiver.statistics().current_buffer_used == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.db"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def troubles() -> Troubles:
    return Troubles()


@asynccontextmanager
async def a_store(
    path: Path, *, disk: Disk | None = None, troubles: Troubles | None = None, settings: StoreSettings = SETTINGS
) -> AsyncIterator[Store]:
    with trio.fail_after(20):
        async with open_store(
            path, settings, on_trouble=troubles or Troubles(), connect=(disk or Disk()).connect
        ) as store:
            yield store


async def hung(disk: Disk) -> None:
    """Wait until a commit is in the hands of a disk that does not answer."""
    await trio.to_thread.run_sync(disk.hangs.wait)


def stored(path: Path) -> list[int]:
    return [seq for (seq,) in table(path, "SELECT seq FROM events ORDER BY seq")]


# --- writing --------------------------------------------------------------------------------------------------------


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


async def test_flushing_with_nothing_to_write_asks_nothing_of_the_disk(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        store.put_events([event(1)])
        await store.flush()
        before = disk.commits
        assert await store.flush()
        assert disk.commits == before


async def test_all_who_flush_while_a_commit_is_under_way_share_the_next_one(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store, trio.open_nursery() as nursery:
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
        assert await store.oldest_seq() == 0
        store.put_events(events(1, 1001))
        await store.flush()
    assert stored(path) == list(range(901, 1001))
    async with a_store(path) as store:
        assert await store.oldest_seq() == 900


# --- seqs -----------------------------------------------------------------------------------------------------------


async def test_a_reservation_is_durable_ahead_of_the_seqs_given_out(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk) as store:
        reserved = "SELECT value FROM meta WHERE name = 'reserved'"
        assert table(path, reserved) == [(10_000,)]
        before = disk.commits
        for seq in range(1, 5001):
            store.note_seq(seq)
        assert disk.commits == before
        store.note_seq(5001)
        await store.flush()
        assert table(path, reserved) == [(20_000,)]
        store.note_seq(123_456)
        await store.flush()
        assert table(path, reserved) == [(140_000,)]
    async with a_store(path) as store:
        assert store.loaded.first_seq == 140_001


# --- a disk that refuses --------------------------------------------------------------------------------------------


async def test_a_full_disk_degrades_to_memory_and_recovers_by_itself(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    async with a_store(path, disk=disk, troubles=troubles) as store:
        disk.is_full = True
        store.put_events(events(1, 100, size=1000))
        assert not await store.flush()
        kind, details = await troubles.next()
        assert (kind, details["path"], details["rows_waiting"]) == ("store_degraded", str(path), 99)
        assert details["error"] == "OperationalError: database or disk is full"
        store.put_events(events(100, 110))
        store.put_session(session("a"))
        assert not await store.flush()
        assert stored(path) == []
        disk.is_full = False
        kind, details = await troubles.next()
        assert (kind, details["lost"]) == ("store_recovered", 0)
        assert await store.flush()
        assert not store.is_degraded
        assert stored(path) == list(range(1, 110))
        assert troubles.is_empty()


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        sqlite3.OperationalError("disk I/O error"),
        sqlite3.OperationalError("attempt to write a readonly database"),
        sqlite3.OperationalError("database is locked"),
        sqlite3.DatabaseError("database disk image is malformed"),
        OSError(5, "Input/output error"),
        RuntimeError("a defect"),
    ],
)
async def test_whatever_the_error_nothing_is_lost(path: Path, disk: Disk, troubles: Troubles, error: Exception) -> None:
    async with a_store(path, disk=disk, troubles=troubles) as store:
        disk.error = error
        store.put_events(events(1, 4))
        assert not await store.flush()
        assert (await troubles.next())[1]["error"] == f"{type(error).__name__}: {error}"
        store.put_events(events(4, 6))
        disk.error = None
        assert (await troubles.next())[0] == "store_recovered"
        assert stored(path) == [1, 2, 3, 4, 5]


async def test_another_program_that_locks_the_file_is_waited_for(path: Path, disk: Disk, troubles: Troubles) -> None:
    async with a_store(path, disk=disk, troubles=troubles) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.put_events([event(1)])
        assert not await store.flush()
        assert "locked" in (await troubles.next())[1]["error"]
        other.execute("COMMIT")
        other.close()
        assert (await troubles.next())[0] == "store_recovered"
        assert stored(path) == [1]


async def test_over_its_bound_the_oldest_events_are_lost_and_counted_and_nothing_else(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    settings = StoreSettings(retry=Seconds(0.01), backlog=ByteCount(100_000))
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        disk.error = FULL
        for number in range(1, 1001):
            store.put_events([event(number, size=300)])
            store.put_session(session(f"s{number % 10}", updated_at=float(number)))
            store.put_run(run(f"r{number % 10}", accepted_at=float(number)))
            if number % 100 == 0:
                assert not await store.flush()
        lost = store.statistics().lost
        assert 700 < lost < 1000
        assert await store.oldest_seq() == lost
        disk.error = None
        assert (await troubles.next())[0] == "store_degraded"
        assert (await troubles.next())[1]["lost"] == lost
    assert stored(path) == list(range(lost + 1, 1001))
    async with a_store(path) as store:
        assert sorted(row.updated_at for row in store.loaded.sessions) == list(range(991, 1001))
        assert sorted(row.accepted_at for row in store.loaded.runs) == list(range(991, 1001))
        assert await store.oldest_seq() == lost


async def test_telling_may_fail(path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    def tell(kind: str, _: dict[str, Any]) -> None:
        raise KeyError(kind)

    async with open_store(path, SETTINGS, on_trouble=tell, connect=disk.connect) as store:
        disk.error = FULL
        store.put_events([event(1)])
        assert not await store.flush()
        disk.error = None
    assert "nobody could be told of store_degraded" in caplog.text
    assert stored(path) == [1]


# --- a disk that hangs ----------------------------------------------------------------------------------------------

IMPATIENT = StoreSettings(retry=Seconds(0.01), stall=Seconds(0.05), close_timeout=Seconds(0.2))


async def test_flushing_to_a_disk_that_hangs_ends_after_a_while(path: Path, disk: Disk, troubles: Troubles) -> None:
    async with a_store(path, disk=disk, troubles=troubles, settings=IMPATIENT) as store:
        disk.answers.clear()
        store.put_events([event(1)])
        assert not await store.flush()
        kind, details = await troubles.next()
        assert (kind, details["error"]) == ("store_degraded", "no answer for 0.05 s")
        store.put_events([event(2)])
        started = trio.current_time()
        for _ in range(20):
            assert not await store.flush()
        assert trio.current_time() - started < 20 * 0.05
        disk.answers.set()
        assert (await troubles.next())[0] == "store_recovered"
        assert stored(path) == [1, 2]


async def test_a_disk_that_hangs_is_noticed_though_nobody_flushes(path: Path, disk: Disk, troubles: Troubles) -> None:
    settings = StoreSettings(stall=Seconds(0), backlog=ByteCount(10_000))
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        disk.answers.clear()
        store.put_events([event(1)])
        await hung(disk)
        store.put_events(events(2, 500))
        assert store.is_degraded
        assert store.statistics().bytes_waiting < 11_000
        assert (await troubles.next())[0] == "store_degraded"
        disk.answers.set()
        assert (await troubles.next())[0] == "store_recovered"


async def test_a_disk_that_never_answers_does_not_keep_the_supervisor(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_store(path, disk=disk, settings=IMPATIENT) as store:
        disk.answers.clear()
        store.put_events([event(1)])
        await hung(disk)
    assert f"the store {path} does not close; 1 rows may be lost" in caplog.text
    disk.answers.set()


# --- room -----------------------------------------------------------------------------------------------------------


async def test_there_is_room_again_once_enough_is_written(path: Path, disk: Disk) -> None:
    async with a_store(path, disk=disk, settings=StoreSettings(backlog=ByteCount(5000))) as store:
        disk.answers.clear()
        store.put_events(events(1, 10))
        await hung(disk)
        await store.room()
        store.put_events(events(10, 30))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.room)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            disk.answers.set()
        assert store.statistics().bytes_waiting <= 5000


async def test_nobody_waits_for_room_while_the_disk_refuses(path: Path, disk: Disk, troubles: Troubles) -> None:
    async with a_store(path, disk=disk, settings=StoreSettings(backlog=ByteCount(1))) as store:
        disk.error = FULL
        store.put_session(session("a"))
        await store.room()
        assert store.is_degraded
        assert store.statistics().bytes_waiting > 1
        await store.room()


# --- reading --------------------------------------------------------------------------------------------------------


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


# --- the end --------------------------------------------------------------------------------------------------------


async def test_a_closed_store_takes_nothing_more(path: Path) -> None:
    async with a_store(path) as store:
        pass
    with pytest.raises(PoolClosed, match="store is closed"):
        store.put_events([event(1)])
    assert await store.flush()


async def test_what_was_put_before_an_error_is_written_all_the_same(path: Path) -> None:
    with pytest.raises(KeyError):  # noqa: PT012  # the error comes from within the block that is tested
        async with a_store(path) as store:
            store.put_events([event(1)])
            raise KeyError
    assert stored(path) == [1]


async def test_a_store_that_is_cancelled_still_writes_what_waits(path: Path) -> None:
    with trio.CancelScope() as scope:
        async with a_store(path) as store:
            store.put_events([event(1)])
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
