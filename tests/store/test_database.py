import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.backlog import WriteBacklog, WriteBatch
from store.database import Database
from store.opening import open_database
from store.reader import read_events
from store.records import EventRow, is_damage
from tests.store.disks import Disk, table
from tests.store.rows import event, events, run, session


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def database(tmp_path: Path, disk: Disk) -> Iterator[Database]:
    database = open_database(tmp_path / "pool.db", clock=lambda: 1e9, connect=disk.connect).database
    yield database
    database.close()


def batch_of(*rows: EventRow) -> WriteBatch:
    backlog = WriteBacklog(10**9)
    backlog.put_events(rows)
    batch = backlog.begin_batch()
    assert batch is not None
    return batch


def seqs(database: Database) -> list[int]:
    return [row[0] for row in database.connection.execute("SELECT seq FROM events ORDER BY seq")]


def test_any_number_of_rows_is_one_transaction_of_few_different_statements(database: Database, disk: Disk) -> None:
    for count in (1, 2, 3, 5, 9, 17, 100, 511, 512, 513, 1100):
        before, known, statements = disk.commits, database.event_count, disk.count("INSERT INTO events")
        database.write(batch_of(*events(2000 * count, 2000 * count + count)))
        assert (database.event_count - known, disk.commits - before) == (count, 1)
        assert disk.count("INSERT INTO events") - statements <= 3
    assert len(seqs(database)) == database.event_count
    assert len({sql for sql in disk.statements if sql.startswith("INSERT INTO events")}) <= 10


def test_a_batch_that_is_written_again_changes_nothing(database: Database) -> None:
    batch = batch_of(*events(1, 4))
    database.write(batch)
    database.write(batch)
    assert (seqs(database), database.event_count) == ([1, 2, 3], 3)
    database.refresh(was_clean=False)
    assert database.event_count == 3


def test_sessions_and_runs_are_replaced_by_their_keys(database: Database, tmp_path: Path) -> None:
    backlog = WriteBacklog(10**9)
    for agent in ("first", "second"):
        for key in "ab":
            backlog.put_session(session(key, agent=agent))
            backlog.put_run(run(key, body_hash=agent))
        batch = backlog.begin_batch()
        assert batch is not None
        database.write(batch)
        backlog.finish_batch()
    backlog.delete_session("a")
    backlog.delete_runs([("p", "s", "b"), ("p", "s", "none")])
    batch = backlog.begin_batch()
    assert batch is not None
    database.write(batch)
    path = tmp_path / "pool.db"
    assert table(path, "SELECT key, agent FROM sessions") == [("b", "second")]
    assert table(path, "SELECT run_id, body_hash, state FROM runs") == [("a", "second", "accepted")]


def test_a_failed_transaction_leaves_nothing_behind(database: Database, disk: Disk) -> None:
    disk.error = sqlite3.OperationalError("disk I/O error")
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        database.write(batch_of(event(1)))
    disk.error = None
    assert (seqs(database), database.event_count, database.connection.in_transaction) == ([], 0, False)
    database.write(batch_of(event(1)))
    assert database.event_count == 1


def test_the_error_counts_even_where_rolling_back_fails_too(database: Database, disk: Disk) -> None:
    disk.refused = ("COMMIT", "ROLLBACK")
    disk.error = sqlite3.OperationalError("disk I/O error")
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        database.write(batch_of(event(1)))
    disk.error = None
    database.reopen()
    database.write(batch_of(event(2)))
    assert seqs(database) == [2]


def test_a_file_that_cannot_be_opened_leaves_no_connection_behind(tmp_path: Path, disk: Disk) -> None:
    disk.refused = ("PRAGMA journal_mode",)
    disk.error = sqlite3.OperationalError("disk I/O error")
    opened: list[sqlite3.Connection] = []

    def connect(uri: str) -> sqlite3.Connection:
        opened.append(disk.connect(uri))
        return opened[-1]

    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        Database(tmp_path / "pool.db", connect)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].interrupt()


def test_rows_that_no_database_can_hold_do_not_keep_the_others_out(database: Database) -> None:
    batch = batch_of(event(1), event(2**63), event(3, session="\ud800"), event(4))
    with pytest.raises(OverflowError):
        database.write(batch)
    refused = database.write_valid_rows(batch)
    assert (seqs(database), database.event_count) == ([1, 4], 2)
    assert [text.partition(":")[0] for text in refused] == ["OverflowError", "UnicodeEncodeError"]


def test_the_oldest_events_are_deleted_so_many_at_a_time(database: Database) -> None:
    database.write(batch_of(*events(1, 11)))
    assert database.delete_events(2**63 - 1, 3) == 3
    assert (seqs(database)[0], database.event_count, database.purged_through) == (4, 7, 3)
    assert database.delete_events(5, 100) == 2
    assert database.delete_events(5, 100) == 0
    database.refresh(was_clean=False)
    assert (database.event_count, database.purged_through) == (5, 5)


def test_events_of_one_session_are_found_by_an_index(database: Database, disk: Disk, tmp_path: Path) -> None:
    database.write(batch_of(*events(1, 10, session="a"), *events(10, 20, session="b")))
    found = read_events(tmp_path / "pool.db", disk.connect, after=3, before=15, session="b", limit=3)
    assert [row.seq for row in found] == [10, 11, 12]
    (sql,) = [sql for sql in disk.statements if "INDEXED BY" in sql]
    plan = database.connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("b", 3, 15, 3)).fetchall()
    assert any("events_of_session (session=? AND rowid>? AND rowid<?)" in row[-1] for row in plan)
    assert not any("TEMP B-TREE" in row[-1] for row in plan)


def test_only_what_sqlite_calls_damage_is_damage() -> None:
    assert not is_damage(sqlite3.OperationalError("made by hand"))
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.Error) as found:
        connection.execute("nonsense")
    assert not is_damage(found.value)
