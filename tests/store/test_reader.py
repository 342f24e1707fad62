import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.backlog import WriteBatch
from store.database import connect_to
from store.opening import open_database
from store.reader import read_events
from store.records import EventRow
from tests.store.rows import any_event, event, events


def stored(place: Path, rows: list[EventRow]) -> Path:
    path = place / "pool.db"
    database = open_database(path, clock=lambda: 1e9).database
    batch = WriteBatch()
    batch.events.extend(rows)
    database.write(batch)
    database.close()
    return path


@given(st.lists(any_event, max_size=10, unique_by=lambda row: row.seq))
@settings(max_examples=25)
def test_every_event_comes_back_as_it_was(rows: list[EventRow]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = stored(Path(place), rows)
        found = read_events(path, connect_to, after=0, before=2**60, session=None, limit=100)
        assert found == sorted(rows, key=lambda row: row.seq)
        for session in {row.session for row in rows}:
            found = read_events(path, connect_to, after=0, before=2**60, session=session, limit=100)
            assert found == [row for row in sorted(rows, key=lambda row: row.seq) if row.session == session]


@pytest.mark.parametrize("limit", [1, 255, 256, 257, 700, 1000, 5000])
def test_reading_ends_at_the_limit_however_many_pages_it_takes(tmp_path: Path, limit: int) -> None:
    path = stored(tmp_path, events(1, 1025))
    found = read_events(path, connect_to, after=0, before=2**60, session=None, limit=limit)
    assert [row.seq for row in found] == list(range(1, min(limit, 1024) + 1))


def test_both_ends_are_left_out(tmp_path: Path) -> None:
    path = stored(tmp_path, events(1, 10))
    found = read_events(path, connect_to, after=3, before=7, session="s", limit=100)
    assert [row.seq for row in found] == [4, 5, 6]


def test_a_page_too_long_for_one_text_is_read_row_by_row(tmp_path: Path) -> None:
    rows = [event(seq, size=500) for seq in range(1, 300)]
    path = stored(tmp_path, rows)

    def connect(uri: str) -> sqlite3.Connection:
        connection = connect_to(uri)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        return connection

    assert read_events(path, connect, after=0, before=2**60, session=None, limit=1000) == rows
