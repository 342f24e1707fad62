"""A disk that refuses, hangs or is full when a test says so, put between the store and SQLite as its ``connect``."""

import sqlite3
import threading
from typing import Any, cast

from store.database import connect_to


class Disk:
    """Healthy until told otherwise. ``statements`` are those of all connections, as far as they went through here."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.error: Exception | None = None
        """Raised by every COMMIT while it is set, and by whatever else ``refused`` names."""
        self.refused: tuple[str, ...] = ("COMMIT",)
        self.is_full = False
        """While it is set, SQLite itself finds no room for another page."""
        self.commits = 0
        self._committing = threading.Condition()
        self.hangs = threading.Event()
        """Set by the first COMMIT that waits for ``answers``."""
        self.answers = threading.Event()
        self.answers.set()

    def connect(self, uri: str) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                disk.statements.append(sql)
                if sql.startswith("BEGIN"):
                    super().execute(f"PRAGMA max_page_count = {1 if disk.is_full else 2**30}")
                disk.before(sql)
                return super().execute(sql, parameters)

        kind = Connection
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=kind)

    def before(self, sql: str) -> None:
        """What happens to a statement before SQLite gets to see it."""
        if sql == "COMMIT":
            with self._committing:
                self.commits += 1
                self._committing.notify_all()
            if not self.answers.is_set():
                self.hangs.set()
                self.answers.wait(10)
        if self.error is not None and sql.startswith(self.refused):
            raise self.error

    def wait_for_commits(self, count: int) -> bool:
        """Until so many more have been tried; False = they have not come."""
        with self._committing:
            upto = self.commits + count
            return self._committing.wait_for(lambda: self.commits >= upto, 10)

    def count(self, start: str) -> int:
        """How many statements began like that."""
        return sum(sql.startswith(start) for sql in self.statements)


def table(path: Any, sql: str) -> list[tuple[Any, ...]]:
    """What a stranger finds in the file."""
    connection = connect_to(path.as_uri())
    try:
        return cast("list[tuple[Any, ...]]", connection.execute(sql).fetchall())
    finally:
        connection.close()
