import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from msgspec.structs import force_setattr

from store.settings import StoreSettings
from store.store import open_store
from tests.store.disks import Disk
from tests.store.rows import event, events, run, session
from tests.store.stores import FULL, SETTINGS, Troubles, a_store, hung, stored, tried_anew
from wire.units import ByteCount, Seconds


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
        await tried_anew(disk)
        disk.error = None
        assert (await troubles.next())[0] == "store_degraded"
        lost = (await troubles.next())[1]["lost"]
        assert 500 < lost < 1000
        assert (store.statistics().lost, store.oldest_seq) == (lost, lost + 1)
    assert stored(path) == list(range(lost + 1, 1001))
    async with a_store(path) as store:
        assert sorted(row.updated_at for row in store.loaded.sessions) == list(range(991, 1001))
        assert sorted(row.accepted_at for row in store.loaded.runs) == list(range(991, 1001))
        assert store.oldest_seq == lost + 1


async def test_what_an_attempt_holds_is_not_given_up_but_the_oldest_of_what_came_during_it(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    settings = StoreSettings(stall=Seconds(0.2), backlog=ByteCount(100_000))
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        disk.answers.clear()
        store.put_events(events(1, 101, size=300))
        await hung(disk)
        assert (await troubles.next())[0] == "store_degraded"
        store.put_events(events(101, 1001, size=300))
        disk.answers.set()
        kind, details = await troubles.next()
        oldest = 101 + details["lost"]
        assert (kind, oldest > 800, store.oldest_seq) == ("store_recovered", True, oldest)
    assert stored(path) == [*range(1, 101), *range(oldest, 1001)]
    async with a_store(path) as store:
        assert store.oldest_seq == oldest


async def test_telling_may_fail(path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    def tell(kind: str, _: dict[str, Any]) -> None:
        raise KeyError(kind)

    async with open_store(path, SETTINGS, on_trouble=tell, connect=disk.connect) as store:
        disk.error = FULL
        store.put_events([event(1)])
        assert not await store.flush()
        disk.error = None
    assert "event callback for store_degraded failed" in caplog.text
    assert stored(path) == [1]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the file so often that a test need not wait."""
    monkeypatch.setattr("store.maintenance._FILE_CHECK_SECONDS", 0.02)


def remove_all(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.rename(path)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("harm", [Path.unlink, remove_all, replace])
async def test_a_file_that_is_removed_or_replaced_is_told_once_though_nobody_writes_and_nothing_is_promised_any_more(
    tmp_path: Path, troubles: Troubles, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data" / "pool.db"
    await trio.Path(path.parent).mkdir()
    async with a_store(path, troubles=troubles) as store:
        store.put_events([event(1)])
        assert await store.flush()
        harm(path)
        kind, details = await troubles.next()
        assert (kind, details["path"], store.is_degraded) == ("store_degraded", str(path), True)
        assert details["error"].startswith(f"FileLost: {path} was re")
        assert "restart" in details["error"]
        for seq in range(2, 5):
            store.put_events([event(seq)])
            assert not await store.flush()
        assert store.statistics().rows_waiting == 3
    assert troubles.is_empty()
    assert f"3 rows could not be written to {path} and are lost" in caplog.text


@pytest.mark.usefixtures("often")
async def test_a_file_that_was_moved_away_is_used_again_when_it_is_back(path: Path, troubles: Troubles) -> None:
    away = path.with_name("away")
    async with a_store(path, troubles=troubles) as store:
        store.put_events([event(1)])
        assert await store.flush()
        await trio.Path(path).rename(away)
        assert (await troubles.next())[0] == "store_degraded"
        await trio.Path(away).rename(path)
        await trio.sleep(20 * SETTINGS.retry)  # no attempt is under way any more, and the next one is up to the put
        store.put_events([event(2)])
        assert (await troubles.next())[0] == "store_recovered"
        assert await store.flush()
    assert stored(path) == [1, 2]


@pytest.mark.usefixtures("often")
async def test_a_log_that_is_removed_costs_nothing(path: Path, troubles: Troubles) -> None:
    async with a_store(path, troubles=troubles) as store:
        store.put_events([event(1)])
        assert await store.flush()
        path.with_name("pool.db-wal").unlink()
        assert (await troubles.next())[0] == "store_degraded"
        store.put_events([event(2)])
        assert (await troubles.next())[0] == "store_recovered"
        assert stored(path) == [1, 2]


async def test_a_file_that_goes_while_the_disk_refuses_is_told_too(path: Path, disk: Disk, troubles: Troubles) -> None:
    async with a_store(path, disk=disk, troubles=troubles) as store:
        disk.error = FULL
        store.put_events([event(1)])
        assert "disk is full" in (await troubles.next())[1]["error"]
        replace(path)
        kind, details = await troubles.next()
        assert (kind, "was replaced" in details["error"]) == ("store_degraded", True)
        disk.error = None
        assert not await store.flush()
    assert troubles.is_empty()


async def test_a_file_removed_just_before_the_end_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with a_store(path) as store:
        store.put_events([event(1)])
        assert await store.flush()
        await trio.Path(path).unlink()
    assert f"was not closed cleanly: {path} was removed" in caplog.text


IMPATIENT = StoreSettings(retry=Seconds(0.01), stall=Seconds(0.2), close_timeout=Seconds(0.2))


def be_patient(settings: StoreSettings) -> None:
    """From here on the store with these settings lets the disk take its time."""
    force_setattr(settings, "stall", Seconds(1000))


async def test_flushing_to_a_disk_that_hangs_ends_after_a_while(path: Path, disk: Disk, troubles: Troubles) -> None:
    settings = StoreSettings(retry=Seconds(0.01), stall=Seconds(0.2))
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        disk.answers.clear()
        store.put_events([event(1)])
        assert not await store.flush()
        kind, details = await troubles.next()
        assert (kind, details["error"]) == ("store_degraded", "no answer for 0.2 s")
        be_patient(settings)
        store.put_events([event(2)])
        for _ in range(20):
            assert not await store.flush()  # at once: nobody waits for such a disk again
        disk.answers.set()
        assert (await troubles.next())[0] == "store_recovered"
        assert stored(path) == [1, 2]


@pytest.mark.parametrize(
    ("synchronous", "first_wait"),
    [("normal", 1.0), ("full", 0.0)],  # where each commit takes long none is waited for
)
async def test_a_slow_disk_keeps_the_event_loop_for_a_moment_and_not_again(
    path: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    synchronous: Literal["normal", "full"],
    first_wait: float,
) -> None:
    monkeypatch.setattr("store.writer._PATIENCE", 1.0)
    settings = StoreSettings(stall=Seconds(1000), synchronous=synchronous)
    async with a_store(path, disk=disk, settings=settings) as store:
        for seq, wait in ((1, first_wait), (2, 0.0)):
            disk.answers.clear()
            disk.hangs.clear()
            async with trio.open_nursery() as nursery:
                begin = time.monotonic()
                store.put_events([event(seq)])
                nursery.start_soon(store.flush)
                await hung(disk)
                assert wait <= time.monotonic() - begin < wait + 0.9
                disk.answers.set()
        assert stored(path) == [1, 2]


async def test_a_disk_that_hangs_is_noticed_though_nobody_waits_for_it(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    settings = StoreSettings(stall=Seconds(0.2), backlog=ByteCount(10_000))
    async with a_store(path, disk=disk, troubles=troubles, settings=settings) as store:
        for _ in range(2):
            disk.answers.clear()
            store.put_events(events(1, 500))
            kind, details = await troubles.next()
            assert (kind, details["error"]) == ("store_degraded", "no answer for 0.2 s")
            store.put_events(events(500, 1000))
            assert store.is_degraded
            disk.answers.set()
            assert (await troubles.next())[0] == "store_recovered"
            assert not store.is_degraded


async def test_where_nothing_was_to_be_written_the_disk_owes_no_answer(path: Path, troubles: Troubles) -> None:
    settings = StoreSettings(retry=Seconds(0.01), stall=Seconds(0.2))
    async with a_store(path, troubles=troubles, settings=settings) as store:
        store.delete_runs([])
        store.put_events([])
        await trio.sleep(2 * settings.stall)  # the time that must pass without a word
        assert troubles.is_empty()
        assert not store.is_degraded
        be_patient(settings)
        store.put_events([event(1)])
        assert await store.flush()
        assert stored(path) == [1]


async def test_a_disk_that_never_answers_does_not_keep_the_supervisor(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_store(path, disk=disk, settings=IMPATIENT) as store:
        disk.answers.clear()
        store.put_events([event(1)])
        await hung(disk)
    assert f"the store {path} does not close; 1 rows may be lost" in caplog.text
    disk.answers.set()


async def test_there_is_room_again_once_enough_is_written(path: Path, disk: Disk) -> None:
    settings = StoreSettings(stall=Seconds(1000), backlog=ByteCount(5000))
    async with a_store(path, disk=disk, settings=settings) as store:
        disk.answers.clear()
        store.put_events(events(1, 10))
        await hung(disk)
        await store.wait_room()
        store.put_events(events(10, 30))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.wait_room)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            disk.answers.set()
        assert store.statistics().bytes_waiting <= 5000


async def test_nobody_waits_for_room_while_the_disk_refuses(path: Path, disk: Disk, troubles: Troubles) -> None:
    async with a_store(path, disk=disk, settings=StoreSettings(backlog=ByteCount(1))) as store:
        disk.error = FULL
        store.put_session(session("a"))
        await store.wait_room()
        assert store.is_degraded
        assert store.statistics().bytes_waiting > 1
        await store.wait_room()
