"""A store's file, filled and left behind: what the tests of its opening share."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store.backlog import WriteBatch
from store.opening import OpenedDatabase, open_database
from store.records import RunState
from tests.store.rows import events, run, session

NOW = 1_700_000_000.0
AFTER_A_CRASH = 1_000_000_000


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[OpenedDatabase]:
    """The file as it is opened, which is closed again as after a crash."""
    found = open_database(path, clock=lambda: NOW, **options)
    try:
        yield found
    finally:
        found.database.close()


def fill(path: Path, *, cleanly: bool = True, rows: int = 300) -> None:
    """A store with one session, three runs and events enough for many pages."""
    database = open_database(path, clock=lambda: NOW).database
    batch = WriteBatch()
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
