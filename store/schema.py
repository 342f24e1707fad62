"""The tables as a list of migrations, one per format version. A released migration is never changed."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing

APPLICATION_ID = 0x706F6F6C  # "pool", in the file's header: tells a store from any other SQLite file

MIGRATIONS: tuple[tuple[str, ...], ...] = (
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


_CREATED_NAME = re.compile(r"CREATE (?:TABLE|INDEX) (\w+)")


def matches_schema(connection: sqlite3.Connection, version: int, steps: Sequence[Sequence[str]] = MIGRATIONS) -> bool:
    """Whether the tables and indexes are those of the first ``version`` steps; ones with other names are ignored.

    Raises sqlite3.Error where the file cannot be read.
    """
    names = {name for step in steps for statement in step for name in _CREATED_NAME.findall(statement)}
    found = _schema_objects(connection)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        migrate(model, steps[:version])
        return {each for each in found if each[1] in names} == _schema_objects(model)


def _schema_objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def schema_version(connection: sqlite3.Connection) -> int:
    """How many steps the file has been through; 0 = it is new."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Take the file through the steps that it lacks, each in a transaction of its own."""
    for number in range(schema_version(connection), len(steps)):
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
