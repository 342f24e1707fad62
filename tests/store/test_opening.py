import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from store.opening import MIGRATIONS, open_database
from store.records import RunState, StoreUnusable
from tests.store.disks import Disk, table
from tests.store.opening import AFTER_A_CRASH, NOW, crash, fill, opened
from tests.store.rows import run, session


def test_a_new_file_is_for_its_owner_only_and_begins_at_one(path: Path) -> None:
    found = opened(path)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert (found.loaded.first_seq, found.loaded.sessions, found.loaded.runs) == (1, [], [])
    assert (found.loaded.quarantined, found.loaded.was_clean, found.reserved) == (None, True, 10_000)
    found.database.close_cleanly()


def test_what_was_written_is_there_again_runs_in_the_order_of_their_acceptance(path: Path) -> None:
    fill(path)
    found = opened(path)
    assert found.loaded.sessions == [session("s")]
    assert [row.run_id for row in found.loaded.runs] == ["c", "a", "b"]
    assert found.loaded.runs[0] == run("c", accepted_at=10.0, outcome=b"{}", state=RunState.ENDED)
    assert (found.database.event_count, found.loaded.was_clean) == (299, True)
    found.database.close()


def test_after_a_clean_stop_seqs_go_on_behind_the_reservation(path: Path) -> None:
    fill(path)
    found = opened(path)
    assert (found.loaded.first_seq, found.reserved) == (10_001, 20_000)
    assert table(path, "SELECT value FROM meta WHERE name = 'reserved'") == [(20_000,)]
    found.database.close_cleanly()


def test_after_a_crash_a_billion_seqs_are_passed_over(path: Path) -> None:
    fill(path, cleanly=False)
    found = opened(path)
    assert (found.loaded.was_clean, found.loaded.quarantined) == (False, None)
    assert (found.loaded.first_seq, len(found.loaded.sessions)) == (10_001 + AFTER_A_CRASH, 1)
    found.database.close()
    again = opened(path)
    assert again.loaded.first_seq == 20_001 + 2 * AFTER_A_CRASH
    again.database.close()


@pytest.mark.parametrize(("cleanly", "checks"), [(True, 0), (False, 1)])
def test_the_whole_file_is_checked_only_after_a_crash(path: Path, cleanly: bool, checks: int) -> None:  # noqa: FBT001
    fill(path, cleanly=cleanly)
    disk = Disk()
    open_database(path, clock=lambda: NOW, connect=disk.connect).database.close()
    assert disk.count("PRAGMA quick_check") == checks


NEXT = (*MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN mood TEXT", "UPDATE sessions SET mood = 'new'"))


def test_an_older_file_is_taken_forward_step_by_step(path: Path) -> None:
    fill(path)
    open_database(path, clock=lambda: NOW, steps=(*NEXT, ("UPDATE sessions SET mood = mood || 'er'",))).database.close()
    assert table(path, "SELECT mood FROM sessions") == [("newer",)]
    assert table(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 2,)]


def test_a_step_that_fails_is_undone_and_the_ones_before_it_stay(path: Path) -> None:
    fill(path)
    broken = (*NEXT, ("UPDATE sessions SET mood = 'lost'", "this is no SQL"))
    with pytest.raises(StoreUnusable, match=r"cannot be opened.*syntax error"):
        open_database(path, clock=lambda: NOW, steps=broken)
    assert table(path, "SELECT mood FROM sessions") == [("new",)]
    assert table(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_newer_file_is_refused_and_not_touched(path: Path, cleanly: bool) -> None:  # noqa: FBT001
    fill(path, cleanly=cleanly)
    newer = open_database(path, clock=lambda: NOW, steps=NEXT).database
    if cleanly:
        newer.close_cleanly()
    else:
        crash(path, newer.connection)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    with pytest.raises(StoreUnusable, match=f"newer version.*format is {len(NEXT)}") as refused:
        opened(path)
    assert refused.value.details == {"path": str(path)}
    after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    assert {name: content for name, content in after.items() if content or name in before} == before


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
@pytest.mark.parametrize("name", ["pool.db", "pool.db-wal", "pool.db-journal"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(
    path: Path, make: Callable[[Path], None], name: str
) -> None:
    if name != path.name:
        fill(path)
    make(path.with_name(name))
    with pytest.raises(StoreUnusable, match=f"cannot be opened: .*/{name} is no regular file; move it away"):
        opened(path)


def test_a_link_to_what_is_no_regular_file_is_refused_as_well(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")
    with pytest.raises(StoreUnusable, match="is no regular file"):
        opened(path)


def test_a_link_to_nothing_is_refused_and_stays(path: Path) -> None:
    path.symlink_to("elsewhere")
    with pytest.raises(StoreUnusable, match="is a link to elsewhere, which is not there; move it away"):
        opened(path)
    assert [file.name for file in path.parent.iterdir()] == ["pool.db"]


def test_a_link_to_itself_is_refused(path: Path) -> None:
    path.symlink_to(path.name)
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        opened(path)


def test_a_link_to_a_store_is_followed_and_its_log_is_kept_short(path: Path) -> None:
    real = path.parent / "real" / "file.db"
    real.parent.mkdir()
    fill(real)
    path.symlink_to(real)
    database = opened(path).database
    assert database.wal_bytes() == real.with_name("file.db-wal").stat().st_size > 0
    database.close_cleanly()
    found = opened(path)
    assert (found.loaded.quarantined, len(found.loaded.sessions)) == (None, 1)
    found.database.close()


def test_a_directory_that_is_not_there_is_told(path: Path) -> None:
    with pytest.raises(StoreUnusable, match="cannot be opened: No such file or directory"):
        opened(path.parent / "none" / "pool.db")


def test_a_file_that_cannot_be_written_now_is_refused_and_stays(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    disk = Disk()
    disk.error = sqlite3.OperationalError("database or disk is full")
    with pytest.raises(StoreUnusable, match="cannot be opened: database or disk is full"):
        open_database(path, clock=lambda: NOW, connect=disk.connect)
    assert path.read_bytes() == before
    found = opened(path)
    assert (found.loaded.was_clean, len(found.loaded.sessions)) == (True, 1)
    found.database.close()
