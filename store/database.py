"""The writer's connection: one transaction for each batch, and the upkeep of the file. Used by one thread at a time."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from store.backlog import Batch
from store.failures import REFUSED_ROW, FileLost
from store.retention import expired_up_to
from store.statements import (
    DELETE_DOCUMENTS,
    DELETE_RUNS,
    DELETE_SESSIONS,
    PUT_DOCUMENTS,
    PUT_EVENTS,
    PUT_RUNS,
    PUT_SESSIONS,
    Bulk,
    Parameters,
    document_parameters,
    event_parameters,
    run_parameters,
    session_parameters,
)

__all__ = ["Connect", "Database", "connect_to", "read_meta"]

Connect = Callable[[str], sqlite3.Connection]
"""Opens a connection by URI, in autocommit mode and usable from any thread: ``connect_to``, or a test's."""

_BUSY_TIMEOUT_MS = 1000
_CACHE_KIB = 1024


def connect_to(uri: str) -> sqlite3.Connection:
    """A plain connection; transactions are begun and ended by hand."""
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def read_meta(connection: sqlite3.Connection, name: str) -> int:
    """One number of the table ``meta``."""
    return int(connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


class Database:
    """The open file. Every method raises ``sqlite3.Error`` and leaves no transaction behind."""

    def __init__(self, path: Path, connect: Connect) -> None:
        """Open the file, or make it; its tables are the business of ``store.opening``."""
        self.path = path
        self._log = Path(f"{path.resolve()}-wal")  # SQLite keeps it beside the file itself, not beside a link to it
        self._places: dict[Path, tuple[int, int]] = {}
        self._connect = connect
        self.connection = self._open("rwc")
        self.events = 0
        """Rows in the table of events, once ``refresh`` has read it."""
        self.gone = 0
        """Highest seq of events that were deleted or given up; the same."""

    def refresh(self) -> None:
        """Read the figures that every write keeps up to date, and which files they are in."""
        self.events = read_meta(self.connection, "events")
        self.gone = read_meta(self.connection, "gone")
        self._places = {file: _place_of(file) for file in (self.path, self._log) if file.exists()}

    def check_place(self) -> None:
        """Raise FileLost when the file, or its log, is not the one that was opened."""
        for file, place in self._places.items():
            if _place_of(file) != place:
                raise FileLost(f"{file} was replaced")

    def reopen(self) -> None:
        """Start over with a new connection: the old one may point to a disk that has gone and come back.

        Raises FileLost when another file has the name now. The number of its device may be new all the same.
        """
        if _place_of(self.path)[1] != self._places[self.path][1]:
            raise FileLost(f"{self.path} was replaced")
        with suppress(sqlite3.Error):
            self.connection.close()
        self.connection = self._open("rw")
        self.refresh()

    def close(self) -> None:
        """Also moves the log into the file and removes it, when no reader is left."""
        self.connection.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Write the batch as one transaction. Writing it again does no harm."""
        with self.transaction():
            counts = {bulk: bulk.run(self.connection, rows) for bulk, rows in _jobs(batch)}
            added = counts.get(PUT_EVENTS, 0)
            self._note(batch, added)
        self._noted(batch, added)

    def write_what_fits(self, batch: Batch) -> list[str]:
        """The same, row by row, without the rows that the database cannot hold; returns what is wrong with each."""
        refused: list[str] = []
        added = 0
        with self.transaction():
            for bulk, row in ((bulk, row) for bulk, rows in _jobs(batch) for row in rows):
                try:
                    count = bulk.run(self.connection, [row])
                except REFUSED_ROW as exc:
                    refused.append(f"{type(exc).__name__}: {exc}")
                else:
                    added += count if bulk is PUT_EVENTS else 0
            self._note(batch, added)
        self._noted(batch, added)
        return refused

    def _note(self, batch: Batch, added: int) -> None:
        if batch.reserved:
            self._meta("reserved", "max(value, ?)", batch.reserved)
        if added:
            self._meta("events", "value + ?", added)
        if batch.gone:
            self.give_up(batch.gone)

    def _noted(self, batch: Batch, added: int) -> None:
        """The transaction has been committed."""
        self.events += added
        self.gone = max(self.gone, batch.gone)

    def mark_open(self, reserved: int) -> None:
        """Note, within a transaction, that a life has begun which may give out seqs up to ``reserved``."""
        self._meta("clean", "?", 0)
        self._meta("reserved", "?", reserved)

    def close_cleanly(self) -> None:
        """Leave the mark that the next life need not check the file, and close it; closes it in any case."""
        try:
            self.check_place()
            with self.transaction():
                self._meta("clean", "?", 1)
        finally:
            self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                with suppress(sqlite3.Error):  # the error that brought us here says more
                    self.connection.execute("ROLLBACK")

    def give_up(self, seq: int) -> None:
        """Remember, within a transaction, that events up to this one may be missing."""
        self._meta("gone", "max(value, ?)", seq)

    def _meta(self, name: str, expression: str, number: int) -> None:
        update = f"UPDATE meta SET value = {expression} WHERE name = ?"  # noqa: S608  # literals of this module
        self.connection.execute(update, (number, name))

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def delete_events(self, upto: int, most: int) -> int:
        """Delete at most so many of the oldest events, none above ``upto``; returns how many."""
        edge = "SELECT max(seq) FROM (SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ?)"
        with self.transaction():
            boundary = self.connection.execute(edge, (upto, most)).fetchone()[0]
            if boundary is None:
                return 0
            deleted = self.connection.execute("DELETE FROM events WHERE seq <= ?", (boundary,)).rowcount
            self._meta("events", "value + ?", -deleted)
            self.give_up(boundary)
        self.events -= deleted
        self.gone = max(self.gone, boundary)
        return deleted

    def events_before(self, cutoff: float) -> int:
        """The seq up to which all events are from before that Unix time; 0 = none."""
        first, last = self.connection.execute("SELECT (SELECT min(seq) FROM events), max(seq) FROM events").fetchone()
        return 0 if first is None else expired_up_to(first, last, cutoff, self._probe)

    def latest_time(self) -> float | None:
        """When the last event was written, as Unix time; None = there is none."""
        found = self.connection.execute("SELECT ts FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return None if found is None else float(found[0])

    def _probe(self, seq: int) -> tuple[int, float]:
        found = self.connection.execute("SELECT seq, ts FROM events WHERE seq >= ? ORDER BY seq LIMIT 1", (seq,))
        at, ts = found.fetchone()
        return at, ts

    def log_bytes(self) -> int:
        """Size of the write-ahead log."""
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0

    def move_log(self) -> None:
        """Move what the log holds into the file, as far as no reader needs it where it is."""
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def free_pages(self) -> tuple[int, int]:
        """Unused pages in the file, and all its pages."""
        unused, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGE_COUNTS)
        return unused, pages

    def shrink(self, pages: int) -> None:
        """Give so many unused pages back to the file system."""
        # The pragma frees a page a step and gives no rows, for which ``execute`` would take but one step.
        self.connection.executescript(f"PRAGMA incremental_vacuum({pages:d})")

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = self._connect(f"{self.path.absolute().as_uri()}?mode={mode}")
        try:
            is_new = self.path.stat().st_size == 0
            for name, value in (*(_FOR_A_NEW_FILE if is_new else ()), *_PRAGMAS):
                connection.execute(f"PRAGMA {name} = {value}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection


def _place_of(file: Path) -> tuple[int, int]:
    """Device and number of the file that has this name now. Raises FileLost when there is none to be found."""
    try:
        found = file.stat()
    except OSError as exc:
        raise FileLost(f"{file} was removed ({exc.strerror})") from exc
    return found.st_dev, found.st_ino


_PAGE_COUNTS = ("freelist_count", "page_count")
_FOR_A_NEW_FILE = (("auto_vacuum", "INCREMENTAL"),)  # said to an existing one it would only be written again
_PRAGMAS = (
    ("busy_timeout", _BUSY_TIMEOUT_MS),
    ("journal_mode", "WAL"),
    ("synchronous", "NORMAL"),
    ("wal_autocheckpoint", 0),  # done after a commit has been reported, not within it
    ("journal_size_limit", 0),  # a log that was emptied is cut, so that its size tells what it holds
    ("cache_size", -_CACHE_KIB),
)


def _jobs(batch: Batch) -> list[tuple[Bulk, Sequence[Parameters]]]:
    jobs: list[tuple[Bulk, Sequence[Parameters]]] = [
        (DELETE_SESSIONS, [(key,) for key in batch.sessions.removed]),
        (PUT_SESSIONS, session_parameters(batch.sessions.rows.values())),
        (DELETE_RUNS, list(batch.runs.removed)),
        (PUT_RUNS, run_parameters(batch.runs.rows.values())),
        (DELETE_DOCUMENTS, list(batch.documents.removed)),
        (PUT_DOCUMENTS, document_parameters(batch.documents.rows.values())),
        (PUT_EVENTS, event_parameters(batch.events)),
    ]
    return [(bulk, rows) for bulk, rows in jobs if rows]
