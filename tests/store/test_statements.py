import sqlite3
from typing import Any

import pytest

from store.statements import PUT_EVENTS, Parameters

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
