"""The writer's SQLite connection: one transaction for each batch, bulk statements, and upkeep of the file.

``sqlite3`` releases the interpreter's lock around every step of a statement, and a thread that wants it back from a
busy event loop waits up to 5 ms for it: written row by row, 1000 rows take 5 s. One step for many rows takes a few
milliseconds. So that few statements are prepared, the sizes of large ones are powers of two, filled up with the
smallest row again, since SQLite copies every parameter. Every statement is idempotent for a row that occurs twice, and
no two rows of a list have the same key. Used by one thread at a time.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

from msgspec.structs import astuple

from store.backlog import WriteBatch
from store.records import ROW_ERRORS, FileLost, RunRow
from store.settings import expired_up_to

Parameters = tuple[str | bytes | int | float | None, ...]

_MAX_ROWS = 512
_EXACT_ROWS = 16
"""Up to here there is a statement for each number of rows: looking for the smallest row takes as long as writing it."""


class BulkStatement:
    """A statement with a list of rows in its middle."""

    def __init__(self, head: str, columns: int, tail: str = "") -> None:
        self._parts = (head, columns, tail)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Parameters]) -> int:
        """Execute for all rows; returns how many rows of the table were changed."""
        if len(rows) <= _EXACT_ROWS:
            text = _statement_text(*self._parts, len(rows))
            return connection.execute(text, list(chain.from_iterable(rows))).rowcount
        changed = 0
        for start in range(0, len(rows), _MAX_ROWS):
            part = rows[start : start + _MAX_ROWS]
            size = 1 << (len(part) - 1).bit_length()
            padding = (min(part, key=_size_of),) * (size - len(part))
            parameters = list(chain.from_iterable(chain(part, padding)))
            changed += connection.execute(_statement_text(*self._parts, size), parameters).rowcount
        return changed


def _size_of(row: Parameters) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


@lru_cache(maxsize=128)
def _statement_text(head: str, columns: int, tail: str, size: int) -> str:
    one = f"({', '.join('?' * columns)})"
    return f"{head} {', '.join([one] * size)} {tail}"


# The parts of these statements are literals of this module; values only ever arrive as parameters.
PUT_EVENTS = BulkStatement("INSERT INTO events VALUES", 7, "ON CONFLICT (seq) DO NOTHING")
PUT_SESSIONS = BulkStatement(
    "INSERT INTO sessions VALUES",
    7,
    "ON CONFLICT (key) DO UPDATE SET agent = excluded.agent, role = excluded.role, transcript = excluded.transcript, "
    "created_at = excluded.created_at, updated_at = excluded.updated_at, data = excluded.data",
)
PUT_RUNS = BulkStatement(
    "INSERT INTO runs VALUES",
    10,
    "ON CONFLICT (principal, session, run_id) DO UPDATE SET state = excluded.state, body_hash = excluded.body_hash, "
    "request = excluded.request, accepted_at = excluded.accepted_at, started_at = excluded.started_at, "
    "ended_at = excluded.ended_at, outcome = excluded.outcome",
)
PUT_DOCUMENTS = BulkStatement(
    "INSERT INTO documents VALUES", 3, "ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body"
)
DELETE_SESSIONS = BulkStatement("DELETE FROM sessions WHERE (key) IN (VALUES", 1, ")")
# Of several columns IN has SQLite look at every row of the table; so the rows to go are looked up, and joined by rowid.
DELETE_RUNS = BulkStatement(
    "WITH gone (principal, session, run_id) AS (VALUES",
    3,
    ") DELETE FROM runs WHERE rowid IN "
    "(SELECT runs.rowid FROM gone CROSS JOIN runs USING (principal, session, run_id))",
)
DELETE_DOCUMENTS = BulkStatement(
    "WITH gone (kind, key) AS (VALUES",
    2,
    ") DELETE FROM documents WHERE rowid IN (SELECT documents.rowid FROM gone CROSS JOIN documents USING (kind, key))",
)


Connect = Callable[[str], sqlite3.Connection]
"""Opens a connection by URI, in autocommit mode and usable from any thread: ``connect_to``, or a test's."""

_BUSY_TIMEOUT_MS = 1000
_CACHE_KIB = 1024


def connect_to(uri: str) -> sqlite3.Connection:
    """A plain connection; transactions are begun and ended by hand."""
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def connect_read_only(path: Path, connect: Connect) -> sqlite3.Connection:
    """A connection that changes nothing."""
    return connect(f"{path.absolute().as_uri()}?mode=ro")


def read_meta(connection: sqlite3.Connection, name: str) -> int:
    """One number of the table ``meta``."""
    return int(connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


class Database:
    """The open file. Every method raises ``sqlite3.Error`` and leaves no transaction behind."""

    def __init__(self, path: Path, connect: Connect) -> None:
        """Open the file, or make it; its tables are the business of ``store.opening``."""
        self.path = path
        self._wal = Path(f"{path.resolve()}-wal")  # SQLite keeps it beside the file itself, not beside a link to it
        self._file_ids: dict[Path, tuple[int, int]] = {}
        self._connect = connect
        self._synchronous = "normal"
        self.connection = self._open("rwc")
        self.event_count = 0
        """Rows in the table of events, once ``refresh`` has read or counted them."""
        self.purged_through = 0
        """Highest seq of events that were deleted or given up; the same."""

    def set_synchronous(self, mode: Literal["normal", "full"]) -> None:
        """From now on: ``full`` = a commit returns once the disk itself has it."""
        self._synchronous = mode
        self.connection.execute(f"PRAGMA synchronous = {mode}")

    def refresh(self, *, was_clean: bool) -> None:
        """Read the figures that are kept up to date in memory, and which files they are in.

        How many events there are is only written at a clean end; a count of a million takes some 20 ms.
        """
        if was_clean:
            self.event_count = read_meta(self.connection, "events")
        else:
            (self.event_count,) = self.connection.execute("SELECT count(*) FROM events").fetchone()
        self.purged_through = read_meta(self.connection, "gone")
        self._file_ids = {file: _file_id(file) for file in (self.path, self._wal) if file.exists()}

    def check_file(self) -> None:
        """Raise FileLost when the file, or its log, is not the one that was opened."""
        for file, place in self._file_ids.items():
            if _file_id(file) != place:
                raise FileLost(f"{file} was replaced")

    def reopen(self) -> None:
        """Start over with a new connection: the old one may point to a disk that has gone and come back.

        Raises FileLost when another file has the name now. The number of its device may be new all the same.
        """
        if _file_id(self.path)[1] != self._file_ids[self.path][1]:
            raise FileLost(f"{self.path} was replaced")
        with suppress(sqlite3.Error):
            self.connection.close()
        self.connection = self._open("rw")
        self.refresh(was_clean=False)

    def close(self) -> None:
        """Also moves the log into the file and removes it, when no reader is left."""
        self.connection.close()

    def write(self, batch: WriteBatch) -> None:
        """Write the batch as one transaction. Writing it again does no harm."""
        with self.transaction():
            added = 0
            for bulk, rows in _bulk_statements(batch):
                count = bulk.run(self.connection, rows)
                if bulk is PUT_EVENTS:
                    added = count
            self._update_meta(batch)
        self._count(added, batch.purged_through)

    def write_valid_rows(self, batch: WriteBatch) -> list[str]:
        """The same, row by row, without the rows that the database cannot hold; returns what is wrong with each."""
        refused: list[str] = []
        added = 0
        with self.transaction():
            for bulk, row in ((bulk, row) for bulk, rows in _bulk_statements(batch) for row in rows):
                try:
                    count = bulk.run(self.connection, [row])
                except ROW_ERRORS as exc:
                    refused.append(f"{type(exc).__name__}: {exc}")
                else:
                    added += count if bulk is PUT_EVENTS else 0
            self._update_meta(batch)
        self._count(added, batch.purged_through)
        return refused

    def _update_meta(self, batch: WriteBatch) -> None:
        if batch.reserved:
            self._set_meta("reserved", "max(value, ?)", batch.reserved)
        if batch.purged_through:
            self.mark_purged(batch.purged_through)

    def _count(self, added: int, purged_through: int) -> None:
        """The transaction has been committed."""
        self.event_count += added
        self.purged_through = max(self.purged_through, purged_through)

    def mark_open(self, reserved: int) -> None:
        """Note, within a transaction, that a life has begun which may give out seqs up to ``reserved``."""
        self._set_meta("clean", "?", 0)
        self._set_meta("reserved", "?", reserved)

    def close_cleanly(self) -> None:
        """Leave the mark that the next life need not check the file, and close it; closes it in any case."""
        try:
            self.check_file()
            with self.transaction():
                self._set_meta("events", "?", self.event_count)
                self._set_meta("clean", "?", 1)
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

    def mark_purged(self, seq: int) -> None:
        """Remember, within a transaction, that events up to this one may be missing."""
        self._set_meta("gone", "max(value, ?)", seq)

    def _set_meta(self, name: str, expression: str, number: int) -> None:
        update = f"UPDATE meta SET value = {expression} WHERE name = ?"  # noqa: S608  # literals of this module
        self.connection.execute(update, (number, name))

    def delete_events(self, upto: int, most: int) -> int:
        """Delete at most ``most`` of the oldest events, none above ``upto``; returns how many."""
        edge = "SELECT max(seq) FROM (SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ?)"
        with self.transaction():
            boundary = self.connection.execute(edge, (upto, most)).fetchone()[0]
            if boundary is None:
                return 0
            deleted = self.connection.execute("DELETE FROM events WHERE seq <= ?", (boundary,)).rowcount
            self.mark_purged(boundary)
        self._count(-deleted, boundary)
        return deleted

    def last_seq_before(self, cutoff: float) -> int:
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

    def wal_bytes(self) -> int:
        """Size of the write-ahead log."""
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0

    def checkpoint(self) -> None:
        """Move what the log holds into the file, as far as no reader needs it where it is."""
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def free_pages(self) -> tuple[int, int]:
        """Unused pages in the file, and all its pages."""
        unused, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGE_COUNTS)
        return unused, pages

    def vacuum(self, pages: int) -> None:
        """Give unused pages back to the file system."""
        # The pragma frees a page a step and gives no rows, for which ``execute`` would take but one step.
        self.connection.executescript(f"PRAGMA incremental_vacuum({pages:d})")

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = self._connect(f"{self.path.absolute().as_uri()}?mode={mode}")
        try:
            is_new = self.path.stat().st_size == 0
            for name, value in (*(_NEW_FILE_PRAGMAS if is_new else ()), *_PRAGMAS, ("synchronous", self._synchronous)):
                connection.execute(f"PRAGMA {name} = {value}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection


def _file_id(file: Path) -> tuple[int, int]:
    """Device and number of the file that has this name now. Raises FileLost when there is none to be found."""
    try:
        found = file.stat()
    except OSError as exc:
        raise FileLost(f"{file} was removed ({exc.strerror})") from exc
    return found.st_dev, found.st_ino


_PAGE_COUNTS = ("freelist_count", "page_count")
_NEW_FILE_PRAGMAS = (("auto_vacuum", "INCREMENTAL"),)  # said to an existing one it would only be written again
_PRAGMAS = (
    ("busy_timeout", _BUSY_TIMEOUT_MS),
    ("journal_mode", "WAL"),
    ("wal_autocheckpoint", 0),  # done after a commit has been reported, not within it
    ("journal_size_limit", 0),  # a log that was emptied is cut, so that its size tells what it holds
    ("cache_size", -_CACHE_KIB),
)


def _bulk_statements(batch: WriteBatch) -> Iterator[tuple[BulkStatement, Sequence[Parameters]]]:
    """The parameters of a row stand in the order of its table's columns."""
    sessions, runs, documents = batch.sessions, batch.runs, batch.documents
    if sessions.removed:
        yield DELETE_SESSIONS, [(key,) for key in sessions.removed]
    if sessions.rows:
        yield PUT_SESSIONS, list(map(astuple, sessions.rows.values()))
    if runs.removed:
        yield DELETE_RUNS, list(runs.removed)
    if runs.rows:
        yield PUT_RUNS, list(map(_run_parameters, runs.rows.values()))
    if documents.removed:
        yield DELETE_DOCUMENTS, list(documents.removed)
    if documents.rows:
        yield PUT_DOCUMENTS, list(map(astuple, documents.rows.values()))
    if batch.events:
        events = [(row.seq, row.ts, row.session, row.channel, row.type, row.run_id, row.data) for row in batch.events]
        yield PUT_EVENTS, events


def _run_parameters(row: RunRow) -> Parameters:
    return (
        *(row.principal, row.session, row.run_id, row.state.value, row.body_hash, row.request),
        *(row.accepted_at, row.started_at, row.ended_at, row.outcome),
    )
