"""Rows as SQL parameters, and statements that take many rows at once.

``sqlite3`` lets go of the interpreter's lock around every step of a statement, and a thread that wants it back from a
busy event loop waits up to 5 ms for it: written row by row, 1000 rows take 5 s then. One step for many rows makes it a
few milliseconds. So that few statements are prepared, their sizes are powers of two, filled up with the smallest row
again, since SQLite copies every parameter. No statement here does more when it meets a row twice, and no two rows of a
list have the same key.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from store.records import DocumentRow, EventRow, RunRow, SessionRow

__all__ = ["DELETE_DOCUMENTS", "DELETE_RUNS", "DELETE_SESSIONS", "PUT_DOCUMENTS", "PUT_EVENTS", "PUT_RUNS"]
__all__ += ["PUT_SESSIONS", "Bulk", "Parameters", "document_parameters", "event_parameters", "run_parameters"]
__all__ += ["session_parameters"]

Parameters = tuple[str | bytes | int | float | None, ...]

_MOST_ROWS = 512


class Bulk:
    """A statement with a list of rows in its middle."""

    def __init__(self, head: str, columns: int, tail: str = "") -> None:
        self._parts = (head, columns, tail)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Parameters]) -> int:
        """Execute for all rows; returns how many rows of the table were changed."""
        changed = 0
        for start in range(0, len(rows), _MOST_ROWS):
            part = rows[start : start + _MOST_ROWS]
            size = 1 << (len(part) - 1).bit_length()
            padding = (min(part, key=_size_of),) * (size - len(part))
            parameters = list(chain.from_iterable(chain(part, padding)))
            changed += connection.execute(_text(*self._parts, size), parameters).rowcount
        return changed


def _size_of(row: Parameters) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


@lru_cache(maxsize=64)
def _text(head: str, columns: int, tail: str, size: int) -> str:
    one = f"({', '.join('?' * columns)})"
    return f"{head} {', '.join([one] * size)} {tail}"


# The parts of these statements are literals of this module; values only ever arrive as parameters.
PUT_EVENTS = Bulk("INSERT INTO events VALUES", 7, "ON CONFLICT (seq) DO NOTHING")
PUT_SESSIONS = Bulk(
    "INSERT INTO sessions VALUES",
    7,
    "ON CONFLICT (key) DO UPDATE SET agent = excluded.agent, role = excluded.role, transcript = excluded.transcript, "
    "created_at = excluded.created_at, updated_at = excluded.updated_at, data = excluded.data",
)
PUT_RUNS = Bulk(
    "INSERT INTO runs VALUES",
    10,
    "ON CONFLICT (principal, session, run_id) DO UPDATE SET state = excluded.state, body_hash = excluded.body_hash, "
    "request = excluded.request, accepted_at = excluded.accepted_at, started_at = excluded.started_at, "
    "ended_at = excluded.ended_at, outcome = excluded.outcome",
)
PUT_DOCUMENTS = Bulk("INSERT INTO documents VALUES", 3, "ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body")
DELETE_SESSIONS = Bulk("DELETE FROM sessions WHERE (key) IN (VALUES", 1, ")")
# Of several columns IN has SQLite look at every row of the table; so the rows to go are looked up, and joined by rowid.
DELETE_RUNS = Bulk(
    "WITH gone (principal, session, run_id) AS (VALUES",
    3,
    ") DELETE FROM runs WHERE rowid IN "
    "(SELECT runs.rowid FROM gone CROSS JOIN runs USING (principal, session, run_id))",
)
DELETE_DOCUMENTS = Bulk(
    "WITH gone (kind, key) AS (VALUES",
    2,
    ") DELETE FROM documents WHERE rowid IN (SELECT documents.rowid FROM gone CROSS JOIN documents USING (kind, key))",
)


def event_parameters(rows: Iterable[EventRow]) -> list[Parameters]:
    """In the order of the table's columns."""
    return [(row.seq, row.ts, row.session, row.channel, row.type, row.run_id, row.data) for row in rows]


def session_parameters(rows: Iterable[SessionRow]) -> list[Parameters]:
    """In the order of the table's columns."""
    return [
        (row.key, row.agent, row.role, row.transcript, row.created_at, row.updated_at, row.data) for row in rows
    ]  # fmt: skip


def run_parameters(rows: Iterable[RunRow]) -> list[Parameters]:
    """In the order of the table's columns."""
    return [
        (
            *(row.principal, row.session, row.run_id, str(row.state), row.body_hash, row.request),
            *(row.accepted_at, row.started_at, row.ended_at, row.outcome),
        )
        for row in rows
    ]


def document_parameters(rows: Iterable[DocumentRow]) -> list[Parameters]:
    """In the order of the table's columns."""
    return [(row.kind, row.key, row.body) for row in rows]
