"""A disk that keeps what a crash would leave after each of its commits, and a store that commits every single put."""

import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from store import Store, StoreSettings, open_store
from store.writer import Writer
from wire.units import Seconds

PATIENCE = Seconds(60)
"""No write is taken for a refused one, however busy the machine is."""


class KeepingDisk:
    """Each commit's file is kept in a directory of its own; ``commits`` counts those that are complete."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commits = 0
        self.committed = threading.Condition()

    def connect(self, uri: str) -> sqlite3.Connection:
        """As ``store.database.connect_to``."""
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                cursor = super().execute(sql, parameters)
                if sql == "COMMIT":
                    disk.keep()
                return cursor

        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=Connection)

    def keep(self) -> None:
        """Nobody else writes meanwhile: this is the only writer's own thread."""
        place = self.place(self.commits)
        place.mkdir(parents=True)
        for name in ("pool.db", "pool.db-wal"):
            shutil.copyfile(self.directory / name, place / name)
        with self.committed:
            self.commits += 1
            self.committed.notify_all()

    def place(self, commit: int) -> Path:
        """Where the file is kept as it was after that commit, counted from 0."""
        return self.directory / "kept" / str(commit)


def commit_each_put(disk: KeepingDisk) -> Callable[[Writer, Callable[[Any], None]], None]:
    """A ``Writer.put`` that returns when the put has been committed: no two of them share a transaction by chance."""
    put = Writer.put

    def put_and_wait(writer: Writer, change: Callable[[Any], None]) -> None:
        with disk.committed:
            commits, position = disk.commits, writer.backlog.position
            put(writer, change)
            if writer.backlog.position > position:  # there was something to put
                assert disk.committed.wait_for(lambda: disk.commits > commits, 10)

    return put_and_wait


@asynccontextmanager
async def kept_store(directory: Path, connect: Callable[[str], sqlite3.Connection]) -> AsyncIterator[Store]:
    """A store that has no trouble."""
    troubles: list[str] = []
    settings = StoreSettings(stall=PATIENCE)
    async with open_store(
        directory / "pool.db", settings, on_trouble=lambda kind, _facts: troubles.append(kind), connect=connect
    ) as store:
        yield store
    assert troubles == []
