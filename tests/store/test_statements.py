"""Statements for many rows: what they give the database, and how it finds the rows."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from store.database import DELETE_DOCUMENTS, DELETE_RUNS, DELETE_SESSIONS, PUT_EVENTS, BulkStatement, Parameters
from store.opening import migrate

LARGE = 1024 * 1024


class Recording(sqlite3.Connection):
    """Remembers how many bytes it was given to copy."""

    given = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.given += sum(len(value) for value in parameters if isinstance(value, bytes))
        return super().execute(sql, parameters)


def row(seq: int, size: int) -> Parameters:
    return (seq, 0.0, "s", "progress", "text_snapshot", None, b"x" * size)


@pytest.mark.parametrize("large_at", [0, 34])
def test_a_large_row_is_given_to_the_database_once(large_at: int) -> None:
    connection = sqlite3.connect(":memory:", factory=Recording)
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, ts, session, channel, type, run_id, data)")
    rows = [row(seq, LARGE if seq == large_at else 10) for seq in range(35)]
    assert PUT_EVENTS.run(connection, rows) == 35
    assert connection.given < LARGE + 64 * 10
    assert connection.execute("SELECT count(*), sum(length(data)) FROM events").fetchone() == (35, LARGE + 34 * 10)
    connection.close()


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize(("statement", "columns"), [(DELETE_RUNS, 3), (DELETE_DOCUMENTS, 2), (DELETE_SESSIONS, 1)])
def test_to_delete_rows_nobody_goes_through_a_whole_table(statement: BulkStatement, columns: int, rows: int) -> None:
    seen: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        connection.set_trace_callback(seen.append)
        statement.run(connection, [("x",) * columns] * rows)
        connection.set_trace_callback(None)
        (text,) = seen
        plan = " ".join(step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {text}"))
    assert "SEARCH" in plan
    assert not re.search("SCAN (runs|documents|sessions)", plan), plan
