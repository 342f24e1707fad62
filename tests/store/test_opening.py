import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.database import connect_to
from store.opening import MIGRATIONS, migrate, open_database
from store.records import RunState, StoreUnusable
from tests.store.disks import Disk, table
from tests.store.opening import AFTER_A_CRASH, NOW, crash, fill, opened
from tests.store.rows import run, session


def refusal(path: Path, **options: Any) -> str:
    """What is said of a file that cannot be opened."""
    with pytest.raises(StoreUnusable) as refused:
        open_database(path, clock=lambda: NOW, **options)
    assert refused.value.details == {"path": str(path)}
    return refused.value.message


def test_a_new_file_is_for_its_owner_only_and_begins_at_one(path: Path) -> None:
    with opened(path) as found:
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert (found.loaded.first_seq, found.loaded.sessions, found.loaded.runs) == (1, [], [])
        assert (found.loaded.quarantined, found.loaded.was_clean, found.reserved) == (None, True, 10_000)


def test_what_was_written_is_there_again_and_seqs_go_on_behind_the_reservation(path: Path) -> None:
    fill(path)
    with opened(path) as found:
        assert found.loaded.sessions == [session("s")]
        assert [row.run_id for row in found.loaded.runs] == ["c", "a", "b"]  # in the order of their acceptance
        assert found.loaded.runs[0] == run("c", accepted_at=10.0, outcome=b"{}", state=RunState.ENDED)
        assert (found.database.event_count, found.loaded.was_clean) == (299, True)
        assert (found.loaded.first_seq, found.reserved) == (10_001, 20_000)
        assert table(path, "SELECT value FROM meta WHERE name = 'reserved'") == [(20_000,)]


def test_after_a_crash_a_billion_seqs_are_passed_over(path: Path) -> None:
    fill(path, cleanly=False)
    with opened(path) as found:
        assert (found.loaded.was_clean, found.loaded.quarantined) == (False, None)
        assert (found.loaded.first_seq, len(found.loaded.sessions)) == (10_001 + AFTER_A_CRASH, 1)
    with opened(path) as found:
        assert found.loaded.first_seq == 20_001 + 2 * AFTER_A_CRASH


@pytest.mark.parametrize(("cleanly", "checks"), [(True, 0), (False, 1)])
def test_the_whole_file_is_checked_only_after_a_crash(path: Path, *, cleanly: bool, checks: int) -> None:
    fill(path, cleanly=cleanly)
    disk = Disk()
    with opened(path, connect=disk.connect):
        assert disk.count("PRAGMA quick_check") == checks


NEXT = (*MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN mood TEXT", "UPDATE sessions SET mood = 'new'"))


def test_an_older_file_is_taken_forward_step_by_step(path: Path) -> None:
    fill(path)
    with opened(path, steps=(*NEXT, ("UPDATE sessions SET mood = mood || 'er'",))):
        assert table(path, "SELECT mood FROM sessions") == [("newer",)]
        assert table(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 2,)]


def test_a_file_of_the_first_format_gets_every_later_table(path: Path) -> None:
    with closing(connect_to(f"{path.as_uri()}?mode=rwc")) as connection:
        migrate(connection, MIGRATIONS[:1])
    assert table(path, "PRAGMA user_version") == [(1,)]
    with opened(path):
        assert table(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
        assert table(path, "SELECT * FROM documents") == []


def test_a_step_that_fails_is_undone_and_the_ones_before_it_stay(path: Path) -> None:
    fill(path)
    broken = (*NEXT, ("UPDATE sessions SET mood = 'lost'", "this is no SQL"))
    assert "cannot be opened" in (told := refusal(path, steps=broken))
    assert "syntax error" in told
    assert table(path, "SELECT mood FROM sessions") == [("new",)]
    assert table(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_newer_file_is_refused_and_not_touched(path: Path, *, cleanly: bool) -> None:
    fill(path, cleanly=cleanly)
    with opened(path, steps=NEXT) as newer:
        if cleanly:
            newer.database.close_cleanly()
        else:
            crash(path, newer.database.connection)
    before = contents(path)
    assert f"newer version of this program (its format is {len(NEXT)}" in refusal(path)
    after = contents(path)
    assert {name: content for name, content in after.items() if content or name in before} == before


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
@pytest.mark.parametrize("name", ["pool.db", "pool.db-wal", "pool.db-journal"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(
    path: Path, make: Callable[[Path], None], name: str
) -> None:
    if name != path.name:
        fill(path)
    make(path.with_name(name))
    assert f"/{name} is no regular file; move it away" in refusal(path)


def test_a_link_to_nothing_is_refused_and_stays(path: Path) -> None:
    path.symlink_to("elsewhere")
    assert "is a link to elsewhere, which is not there; move it away" in refusal(path)
    assert [file.name for file in path.parent.iterdir()] == ["pool.db"]


@pytest.mark.parametrize(("target", "told"), [("fifo", "is no regular file"), ("pool.db", "cannot be opened")])
def test_a_link_to_no_regular_file_or_to_itself_is_refused(path: Path, target: str, told: str) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to(target)
    assert told in refusal(path)


def test_a_link_to_a_store_is_followed_and_its_log_is_kept_short(path: Path) -> None:
    real = path.parent / "real" / "file.db"
    real.parent.mkdir()
    fill(real)
    path.symlink_to(real)
    with opened(path) as found:
        assert found.database.wal_bytes() == real.with_name("file.db-wal").stat().st_size > 0
        assert (found.loaded.quarantined, len(found.loaded.sessions)) == (None, 1)


def test_a_directory_that_is_not_there_is_told(path: Path) -> None:
    assert "cannot be opened: No such file or directory" in refusal(path.parent / "none" / "pool.db")


def test_a_file_that_cannot_be_written_now_is_refused_and_stays(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    disk = Disk()
    disk.error = sqlite3.OperationalError("database or disk is full")
    assert "cannot be opened: database or disk is full" in refusal(path, connect=disk.connect)
    assert path.read_bytes() == before
    with opened(path) as found:
        assert (found.loaded.was_clean, len(found.loaded.sessions)) == (True, 1)
