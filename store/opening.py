"""Opens the store: checks its file and tables, sets a damaged one aside, migrates an older one, refuses a newer one."""

import os
import re
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from store.database import Connect, Database, connect_read_only, connect_to, read_meta
from store.records import DocumentRow, Loaded, RunRow, SessionRow, StoreUnusable, is_damage, is_read_damage

_APPLICATION_ID = 0x706F6F6C  # "pool", in the file's header: tells a store from any other SQLite file

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
"""The steps from format to format; a released one is never changed.

``meta``: clean = closed in good order, reserved = highest seq that may have been given out, events = rows of that
table, gone = highest seq that has been given up."""

_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER_BYTES = 32
_HEADER_BYTES = 100
_VERSIONS = {1, 2}
_QUARANTINED_WITHOUT_WARNING = 3


def _sidecars(path: Path) -> tuple[Path, Path]:
    """The write-ahead log and the shared-memory file that belong to a database."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _damage_in_headers(path: Path) -> str | None:
    """What is wrong with a file that exists, as far as headers and sizes tell; None = nothing. Raises OSError.

    A log that begins with zeros, or ends too early, is what a power cut leaves behind: SQLite copes with that.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    log = b""
    with suppress(FileNotFoundError), _sidecars(path)[0].open("rb") as file:
        log = file.read(_LOG_HEADER_BYTES)
    if log.strip(b"\0") and not log.startswith(_LOG_MAGICS):
        return "its write-ahead log is not one"
    if not header and not log:
        return "it is empty"
    if header and not header.startswith(_MAGIC):
        return "it is not an SQLite file"
    if len(header) == _HEADER_BYTES and not _VERSIONS.issuperset(header[18:20]):
        return "its header names a format that SQLite does not have"
    if header and not log and size < _size_in(header):
        return f"it is cut off: {size} bytes of {_size_in(header)}"
    return None


def _size_in(header: bytes) -> int:
    page = int.from_bytes(header[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def _quarantine(path: Path, now: float) -> Path:
    """Rename the file with its sidecars, so that SQLite can still open it there; returns its new path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    place = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while place.exists():
        number += 1
        place = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for source, target in zip(_sidecars(path), _sidecars(place), strict=True):
        if source.exists():
            source.rename(target)
    path.rename(place)
    return place


def _quarantine_warning(path: Path) -> str | None:
    """What the files set aside take, once they are more than three; None = not worth a word.

    None is ever removed by itself. Where a disk damages one file after the other, the oldest is the one that still
    holds everything, and the later ones next to nothing: keeping the latest few would throw away the only one of worth.
    """
    start = f"{path.name}.damaged-"
    kept = [file for file in path.parent.iterdir() if file.name.startswith(start)]
    files = sum(not file.name.endswith(("-wal", "-shm")) for file in kept)
    if files <= _QUARANTINED_WITHOUT_WARNING:
        return None
    size = sum(file.lstat().st_size for file in kept)
    return f"{files} damaged files are kept, {size / 1024**2:.1f} MiB in all; remove those that are not needed"


SEQ_BLOCK = 10_000
"""Number of seqs reserved at a time."""

_IMPOSSIBLE_VERSION = 100
"""A version from here on is damage, not a newer program's."""

Row = TypeVar("Row", SessionRow, RunRow, DocumentRow)

_CRASH_SEQ_GAP = 1_000_000_000
"""Seqs passed over, for what a life gave out whose reservations could not be written."""

_SEQS_PER_SECOND = 1_000_000
"""Without a readable file the seqs go on from the time in microseconds, which is above all that were ever given out."""


class OpenedDatabase(NamedTuple):
    """The file, ready to be written, and what it held."""

    database: Database
    loaded: Loaded
    reserved: int
    """The highest seq that may be given out before more must be reserved."""


class _Damaged(Exception):
    """The file cannot be used; why."""


def open_database(
    path: Path,
    *,
    clock: Callable[[], float],
    connect: Connect = connect_to,
    steps: Sequence[Sequence[str]] = MIGRATIONS,
) -> OpenedDatabase:
    """Open the file, make it if there is none. Blocks; after a crash for as long as reading all of the file takes.

    Raises StoreUnusable when the file cannot be opened or written now, or is of a newer version: nothing is changed
    then. A file that is damaged is set aside instead.
    """
    try:
        return _open(path, clock, connect, steps)
    except (sqlite3.Error, OSError, _Damaged) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise StoreUnusable(
            f"the store {path} cannot be opened: {reason}; mend that and start again", path=str(path)
        ) from exc


def _open(path: Path, clock: Callable[[], float], connect: Connect, steps: Sequence[Sequence[str]]) -> OpenedDatabase:
    if not _check_exists(path):
        return _open_file(path, connect, steps, first_seq=1, aside=None)
    try:
        _inspect(path, connect, steps)
        return _open_file(path, connect, steps)
    except _Damaged as exc:
        first_seq = max(int(clock() * _SEQS_PER_SECOND), _salvaged_seq(path, connect)) + 1
        place = _quarantine(path, clock())
        aside = "; ".join(filter(None, (f"{path} was renamed to {place}: {exc}", _quarantine_warning(path))))
        return _open_file(path, connect, steps, first_seq=first_seq, aside=aside)


def _check_exists(path: Path) -> bool:
    """Raise StoreUnusable for what no file can be made of, before anything is opened: a FIFO would wait for ever."""
    # SQLite would play a journal back before it opens the file; the store itself never has one.
    for file in (path, *_sidecars(path), path.with_name(f"{path.name}-journal")):
        if file.exists() and not stat.S_ISREG(file.stat().st_mode):
            raise _unusable(path, file, "is no regular file")
    if not path.exists() and path.is_symlink():
        raise _unusable(path, path, f"is a link to {path.readlink()}, which is not there")
    return path.exists()


def _unusable(path: Path, file: Path, reason: str) -> StoreUnusable:
    message = f"the store {path} cannot be opened: {file} {reason}; move it away, or use another data directory"
    return StoreUnusable(message, path=str(path))


def _inspect(path: Path, connect: Connect, steps: Sequence[Sequence[str]]) -> None:
    """Raise _Damaged, or StoreUnusable for a file of a newer version, without changing a byte of it."""
    damage = _damage_in_headers(path)
    if damage is not None:
        raise _Damaged(damage)
    with _translate_damage(), closing(connect_read_only(path, connect)) as connection:
        version = _schema_version(connection)
        with _translate_read_damage():
            ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID
            is_sound = not ours or not 0 < version <= len(steps) or _matches_schema(connection, version, steps)
    if not ours or version == 0:
        raise _Damaged("it is no store of this program, or its making was cut short")
    if not 0 < version < _IMPOSSIBLE_VERSION:
        raise _Damaged(f"its format is {version}, which no version of this program has")
    if not is_sound:
        raise _Damaged(f"its tables are not those of its format, {version}")
    if version > len(steps):
        raise StoreUnusable(
            f"the store {path} was written by a newer version of this program (its format is {version}, "
            f"the newest one known here is {len(steps)}); start that version, or use another data directory",
            path=str(path),
        )


def _salvaged_seq(path: Path, connect: Connect) -> int:
    """What a damaged file says about the seqs given out, if it says anything; 0 = it does not."""
    try:
        with closing(connect_read_only(path, connect)) as connection:
            reserved = read_meta(connection, "reserved")
    except (sqlite3.Error, TypeError, ValueError):  # damaged in that place too
        return 0
    return reserved + _CRASH_SEQ_GAP if 0 <= reserved < _LARGEST_SEQ else 0


_LARGEST_SEQ = 2**53
"""Above it a number is not the same in every JSON reader."""


@contextmanager
def _translate_damage() -> Iterator[None]:
    """Turn what SQLite says about damage, and values that no life of ours has written, into _Damaged."""
    try:
        yield
    except sqlite3.Error as exc:
        if is_damage(exc):
            raise _Damaged(str(exc)) from exc
        raise


@contextmanager
def _translate_read_damage() -> Iterator[None]:
    """The same around statements that cannot fail on an undamaged file."""
    try:
        yield
    except sqlite3.Error as exc:
        if is_read_damage(exc):
            raise _Damaged(str(exc)) from exc
        raise
    except (TypeError, ValueError, OverflowError) as exc:
        raise _Damaged(f"it holds what cannot be read: {exc}") from exc


def _open_file(
    path: Path,
    connect: Connect,
    steps: Sequence[Sequence[str]],
    *,
    first_seq: int | None = None,
    aside: str | None = None,
) -> OpenedDatabase:
    """``first_seq`` None: the file goes on where it was left."""
    if first_seq is not None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with _translate_damage():
        database = Database(path, connect)
        try:
            return _load(database, steps, first_seq, aside)
        except BaseException:
            database.close()
            raise


def _load(
    database: Database, steps: Sequence[Sequence[str]], first_seq: int | None, aside: str | None
) -> OpenedDatabase:
    connection = database.connection
    migrate(connection, steps)
    with _translate_read_damage():
        loaded = _read(connection, first_seq, aside)
    reserved = loaded.first_seq - 1 + SEQ_BLOCK
    with database.transaction():
        if aside is not None:
            database.mark_purged(loaded.first_seq - 1)
        database.mark_open(reserved)
    database.refresh(was_clean=loaded.was_clean)
    return OpenedDatabase(database, loaded, reserved)


def _read(connection: sqlite3.Connection, first_seq: int | None, aside: str | None) -> Loaded:
    was_clean = bool(read_meta(connection, "clean"))
    if not was_clean and (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise _Damaged(found)
    reserved, _, _ = (read_meta(connection, name) for name in ("reserved", "events", "gone"))
    if not 0 <= reserved < _LARGEST_SEQ:
        raise _Damaged(f"it has given out seqs up to {reserved}, which cannot be")
    loaded = Loaded(
        sessions=list(_rows(connection, SessionRow, "sessions")),
        runs=list(_rows(connection, RunRow, "runs")),
        first_seq=reserved + 1 + (0 if was_clean else _CRASH_SEQ_GAP) if first_seq is None else first_seq,
        quarantined=aside,
        was_clean=was_clean,
    )
    # Documents are loaded later, by their owners; damage must be found while the file can still be set aside.
    deque(_rows(connection, DocumentRow, "documents"), maxlen=0)
    return loaded


def _rows(connection: sqlite3.Connection, kind: type[Row], table: str) -> Iterator[Row]:
    """Raises ValueError for a column of a wrong type: SQLite stores any type in any column."""
    columns = ", ".join(kind.__struct_fields__)
    for row in connection.execute(f"SELECT {columns} FROM {table} ORDER BY rowid"):  # noqa: S608  # literals
        yield msgspec.convert(row, kind, builtin_types=(bytes,))


_CREATED_NAME = re.compile(r"CREATE (?:TABLE|INDEX) (\w+)")


def _matches_schema(connection: sqlite3.Connection, version: int, steps: Sequence[Sequence[str]]) -> bool:
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


def _schema_version(connection: sqlite3.Connection) -> int:
    """How many steps the file has been through; 0 = it is new."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Take the file through the steps that it lacks, each in a transaction of its own."""
    for number in range(_schema_version(connection), len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in steps[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
