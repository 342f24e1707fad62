import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from store.backlog import Batch
from store.database import connect_to
from store.failures import StoreUnusable
from store.opening import Opened, open_database
from store.records import RunState
from store.schema import STEPS
from tests.store.disks import Disk, table
from tests.store.rows import events, run, session

NOW = 1_700_000_000.0
AFTER_A_CRASH = 1_000_000_000


def opened(path: Path) -> Opened:
    return open_database(path, clock=lambda: NOW)


def fill(path: Path, *, cleanly: bool = True, rows: int = 300) -> None:
    """A store with one session, three runs and events enough for many pages."""
    database = opened(path).database
    batch = Batch()
    batch.sessions.put("s", session("s"))
    for number, name in enumerate("cab"):
        batch.runs.put(("p", "s", name), run(name, accepted_at=10.0 - number, outcome=b"{}", state=RunState.ENDED))
    batch.events.extend(events(1, rows, size=300))
    database.write(batch)
    if cleanly:
        database.close_cleanly()
    else:
        crash(path, database.connection)


def crash(path: Path, connection: sqlite3.Connection) -> None:
    """Leave the files as a killed process would: the log is not moved into the file."""
    files = {file: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    connection.close()
    for file, content in files.items():
        file.write_bytes(content)


def damaged(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if "damaged" in file.name)


# --- a sound file ---------------------------------------------------------------------------------------------------


def test_a_new_file_is_for_its_owner_only_and_begins_at_one(path: Path) -> None:
    found = opened(path)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert (found.loaded.first_seq, found.loaded.sessions, found.loaded.runs) == (1, [], [])
    assert (found.loaded.set_aside, found.loaded.was_clean, found.reserved) == (None, True, 10_000)
    found.database.close_cleanly()


def test_what_was_written_is_there_again_runs_in_the_order_of_their_acceptance(path: Path) -> None:
    fill(path)
    found = opened(path)
    assert found.loaded.sessions == [session("s")]
    assert [row.run_id for row in found.loaded.runs] == ["c", "a", "b"]
    assert found.loaded.runs[0] == run("c", accepted_at=10.0, outcome=b"{}", state=RunState.ENDED)
    assert (found.database.events, found.loaded.was_clean) == (299, True)
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
    assert (found.loaded.was_clean, found.loaded.set_aside) == (False, None)
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


# --- other versions -------------------------------------------------------------------------------------------------

NEXT = (*STEPS, ("ALTER TABLE sessions ADD COLUMN mood TEXT", "UPDATE sessions SET mood = 'new'"))


def test_an_older_file_is_taken_forward_step_by_step(path: Path) -> None:
    fill(path)
    open_database(path, clock=lambda: NOW, steps=(*NEXT, ("UPDATE sessions SET mood = mood || 'er'",))).database.close()
    assert table(path, "SELECT mood FROM sessions") == [("newer",)]
    assert table(path, "PRAGMA user_version") == [(len(STEPS) + 2,)]


def test_a_step_that_fails_is_undone_and_the_ones_before_it_stay(path: Path) -> None:
    fill(path)
    broken = (*NEXT, ("UPDATE sessions SET mood = 'lost'", "this is no SQL"))
    with pytest.raises(StoreUnusable, match=r"cannot be opened.*syntax error"):
        open_database(path, clock=lambda: NOW, steps=broken)
    assert table(path, "SELECT mood FROM sessions") == [("new",)]
    assert table(path, "PRAGMA user_version") == [(len(STEPS) + 1,)]


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


# --- damage ---------------------------------------------------------------------------------------------------------


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def garbage_header(path: Path) -> None:
    overwrite(path, 0, b"this is what somebody else has written here, with an editor perhaps")


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_in_the_header(path: Path) -> None:
    os.truncate(path, 50)


def garbage_in_a_table(path: Path) -> None:
    for page in range(2, path.stat().st_size // 4096):
        overwrite(path, page * 4096, b"\xff" * 64)


def garbage_log(path: Path) -> None:
    path.with_name("pool.db-wal").write_bytes(b"no log at all" * 100)


def another_program(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (garbage_header, "not an SQLite file"),
        (emptied, "it is empty"),
        (cut_off, "cut off"),
        (cut_in_the_header, "cut off|not a database|malformed"),
        (garbage_in_a_table, "malformed"),
        (garbage_log, "write-ahead log is not one"),
        (another_program, "no store of this program"),
    ],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(path: Path, harm: object, reason: str) -> None:
    assert callable(harm)
    fill(path)
    harm(path)
    content = path.read_bytes()
    found = opened(path)
    aside = path.with_name("pool.db.damaged-20231114T221320Z")
    assert found.loaded.set_aside is not None
    assert found.loaded.set_aside.startswith(f"{aside}: ")
    assert any(part in found.loaded.set_aside for part in reason.split("|"))
    assert aside.read_bytes() == content
    assert (found.loaded.sessions, found.loaded.runs) == ([], [])
    assert found.loaded.first_seq > int(NOW * 1_000_000)
    assert found.database.gone == found.loaded.first_seq - 1
    found.database.close_cleanly()
    again = opened(path)
    assert (again.loaded.set_aside, again.loaded.first_seq) == (None, found.reserved + 1)
    again.database.close()


def test_damage_that_only_a_check_finds_is_found_after_a_crash(path: Path) -> None:
    fill(path, rows=3000)
    database = opened(path).database
    database.close()  # without the mark
    pages = path.stat().st_size // 4096
    overwrite(path, (pages - 20) * 4096, b"\xff" * 4096)
    found = opened(path)
    assert found.loaded.set_aside is not None
    assert found.loaded.sessions == []
    found.database.close()


def test_the_log_of_a_damaged_file_goes_with_it(path: Path) -> None:
    fill(path, cleanly=False)
    garbage_log(path)
    opened(path).database.close_cleanly()
    assert "pool.db.damaged-20231114T221320Z-wal" in damaged(path)


def test_two_files_damaged_in_the_same_second_are_both_kept(path: Path) -> None:
    for _ in range(3):
        fill(path)
        garbage_header(path)
    opened(path).database.close_cleanly()
    assert damaged(path) == [f"pool.db.damaged-20231114T221320Z{end}" for end in ("", "-2", "-3")]


def test_damaged_files_are_never_removed_but_told_when_they_become_many(path: Path) -> None:
    told = []
    for number in range(5):
        fill(path)
        overwrite(path, 0, b"%d" % number * 100)
        found = opened(path)
        told.append((found.loaded.set_aside or "").partition("not an SQLite file")[2])
        found.database.close()
        path.unlink()
    size = sum(path.with_name(name).stat().st_size for name in damaged(path))
    assert told[:3] == ["", "", ""]
    assert told[4] == f"; 5 damaged files are kept, {size / 1024**2:.1f} MiB in all; remove those that nobody needs"
    assert len(damaged(path)) == 5


def test_seqs_go_on_above_what_a_damaged_file_can_still_tell(path: Path) -> None:
    fill(path)
    connection = connect_to(path.as_uri())
    connection.execute("UPDATE meta SET value = ? WHERE name = 'reserved'", (2**52,))
    connection.close()
    garbage_log(path)
    found = opened(path)
    assert found.loaded.first_seq == 2**52 + AFTER_A_CRASH + 1
    found.database.close()


def test_a_log_that_a_power_cut_left_unwritten_is_no_damage(path: Path) -> None:
    fill(path)
    path.with_name("pool.db-wal").write_bytes(bytes(10_000))
    found = opened(path)
    assert (found.loaded.set_aside, len(found.loaded.sessions)) == (None, 1)
    found.database.close()


def test_a_log_that_ends_too_early_loses_its_end_only(path: Path) -> None:
    fill(path, cleanly=False)
    log = path.with_name("pool.db-wal")
    os.truncate(log, log.stat().st_size - 100)
    found = opened(path)
    assert found.loaded.set_aside is None
    found.database.close()


# --- what is no file ------------------------------------------------------------------------------------------------


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
    assert database.log_bytes() == real.with_name("file.db-wal").stat().st_size > 0
    database.close_cleanly()
    found = opened(path)
    assert (found.loaded.set_aside, len(found.loaded.sessions)) == (None, 1)
    found.database.close()


# --- what is neither ------------------------------------------------------------------------------------------------


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
