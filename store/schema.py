"""The tables, as a list of steps from one version to the next. A step that has been released is never changed."""

import sqlite3
from collections.abc import Sequence

__all__ = ["APPLICATION_ID", "STEPS", "migrate", "version_of"]

APPLICATION_ID = 0x706F6F6C  # "pool", in the file's header: tells a store from any other SQLite file

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID""",
        """INSERT INTO meta VALUES ('clean', 1), ('reserved', 0), ('events', 0), ('gone', 0)""",
        """CREATE TABLE sessions (
            key TEXT PRIMARY KEY, agent TEXT NOT NULL, role TEXT NOT NULL, transcript TEXT,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, data BLOB NOT NULL)""",
        # Rows keep the rowid of their first insertion: the order of acceptance, whatever the wall clock did.
        """CREATE TABLE runs (
            principal TEXT NOT NULL, session TEXT NOT NULL, run_id TEXT NOT NULL, state TEXT NOT NULL,
            body_hash TEXT NOT NULL, request BLOB NOT NULL, accepted_at REAL NOT NULL, started_at REAL,
            ended_at REAL, outcome BLOB, PRIMARY KEY (principal, session, run_id))""",
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY, ts REAL NOT NULL, session TEXT NOT NULL, channel TEXT NOT NULL,
            type TEXT NOT NULL, run_id TEXT, data BLOB NOT NULL)""",
        # Costs two thirds of the writing rate, and makes reading one session of 10,000 no scan of a million rows.
        """CREATE INDEX events_of_session ON events (session)""",
    ),
    (
        # As those of runs, rows keep the rowid of their first insertion.
        """CREATE TABLE documents (
            kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, key))""",
    ),
)
"""``meta``: clean = closed in good order, reserved = highest seq that may have been given out, events = rows of that
table, gone = highest seq that has been given up."""


def version_of(connection: sqlite3.Connection) -> int:
    """How many steps the file has been through; 0 = it is new."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Take the file through the steps that it lacks, each in a transaction of its own."""
    for number in range(version_of(connection), len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in steps[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
