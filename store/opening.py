"""Opens the store: checks the file, sets a damaged one aside, migrates an older one, refuses a newer one.

A migration that has been released is never changed.
"""

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from store.database import Connect, Database, connect_to, read_meta
from store.records import DocumentRow, Loaded, RunRow, SessionRow, StoreUnusable, is_damage, is_damage_found_by_reading

_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER_BYTES = 32
_HEADER_BYTES = 100
_VERSIONS = {1, 2}
_FEW_ASIDE = 3


def sidecars(path: Path) -> tuple[Path, Path]:
    """The write-ahead log and the shared-memory file that belong to a database."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def journal(path: Path) -> Path:
    """What SQLite would play back before it opens a database, were it there; the store itself never has one."""
    return path.with_name(f"{path.name}-journal")


def damage_in_headers(path: Path) -> str | None:
    """What is wrong with a file that exists, as far as headers and sizes tell; None = nothing. Raises OSError.

    A log that begins with zeros, or ends too early, is what a power cut leaves behind: SQLite copes with that.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    log = _read_log_header(sidecars(path)[0])
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


def _read_log_header(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            return file.read(_LOG_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _size_in(header: bytes) -> int:
    page = int.from_bytes(header[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def set_aside(path: Path, now: float) -> Path:
    """Rename the file with its sidecars, so that SQLite can still open it there; returns its new path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    place = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while place.exists():
        number += 1
        place = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for source, target in zip(sidecars(path), sidecars(place), strict=True):
        if source.exists():
            source.rename(target)
    path.rename(place)
    return place


def burden_aside(path: Path) -> str | None:
    """What the files set aside take, once they are more than three; None = not worth a word.

    None is ever removed by itself. Where a disk damages one file after the other, the oldest is the one that still
    holds everything, and the later ones next to nothing: keeping the latest few would throw away the only one of worth.
    """
    start = f"{path.name}.damaged-"
    kept = [file for file in path.parent.iterdir() if file.name.startswith(start)]
    files = sum(not file.name.endswith(("-wal", "-shm")) for file in kept)
    if files <= _FEW_ASIDE:
        return None
    size = sum(file.lstat().st_size for file in kept)
    return f"{files} damaged files are kept, {size / 1024**2:.1f} MiB in all; remove those that nobody needs"


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


_NAMED = re.compile(r"CREATE (?:TABLE|INDEX) (\w+)")


def has_tables_of(connection: sqlite3.Connection, version: int, steps: Sequence[Sequence[str]] = STEPS) -> bool:
    """Whether the tables and indexes are those of the first ``version`` steps; ones with other names are ignored.

    Raises sqlite3.Error where the file cannot be read.
    """
    names = {name for step in steps for statement in step for name in _NAMED.findall(statement)}
    found = _objects(connection)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        migrate(model, steps[:version])
        return {each for each in found if each[1] in names} == _objects(model)


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


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


SEQ_BLOCK = 10_000
"""So many seqs are reserved at a time."""

_NO_VERSION = 100
"""A version from here on is damage, not a newer program's."""

Row = TypeVar("Row", SessionRow, RunRow, DocumentRow)

_AFTER_A_CRASH = 1_000_000_000
"""Seqs passed over, for what a life gave out whose reservations could not be written."""

_SEQS_PER_SECOND = 1_000_000
"""Without a readable file the seqs go on from the time in microseconds, which is above all that were ever given out."""


class Opened(NamedTuple):
    """The file, ready to be written, and what it held."""

    database: Database
    loaded: Loaded
    reserved: int
    """The highest seq that may be given out before more must be reserved."""


class _Damaged(Exception):
    """The file cannot be used; why."""


def open_database(
    path: Path, *, clock: Callable[[], float], connect: Connect = connect_to, steps: Sequence[Sequence[str]] = STEPS
) -> Opened:
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


def _open(path: Path, clock: Callable[[], float], connect: Connect, steps: Sequence[Sequence[str]]) -> Opened:
    if not _is_there(path):
        return _open_file(path, connect, steps, first_seq=1, aside=None)
    try:
        _inspect(path, connect, steps)
        return _open_file(path, connect, steps)
    except _Damaged as exc:
        first_seq = max(int(clock() * _SEQS_PER_SECOND), _salvaged_seq(path, connect)) + 1
        place = set_aside(path, clock())
        aside = "; ".join(filter(None, (f"{place}: {exc}", burden_aside(path))))
        return _open_file(path, connect, steps, first_seq=first_seq, aside=aside)


# --- looking before touching ----------------------------------------------------------------------------------------


def _is_there(path: Path) -> bool:
    """Raise StoreUnusable for what no file can be made of, before anything is opened: a FIFO would wait for ever."""
    for file in (path, *sidecars(path), journal(path)):
        if file.exists() and not stat.S_ISREG(file.stat().st_mode):
            raise _unfit(path, file, "is no regular file")
    if not path.exists() and path.is_symlink():
        raise _unfit(path, path, f"is a link to {path.readlink()}, which is not there")
    return path.exists()


def _unfit(path: Path, file: Path, reason: str) -> StoreUnusable:
    message = f"the store {path} cannot be opened: {file} {reason}; move it away, or use another data directory"
    return StoreUnusable(message, path=str(path))


def _inspect(path: Path, connect: Connect, steps: Sequence[Sequence[str]]) -> None:
    """Raise _Damaged, or StoreUnusable for a file of a newer version, without changing a byte of it."""
    damage = damage_in_headers(path)
    if damage is not None:
        raise _Damaged(damage)
    with _damage_told(), closing(_connect_reading(path, connect)) as connection:
        version = version_of(connection)
        with _damage_of_reading_told():
            ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
            is_sound = not ours or not 0 < version <= len(steps) or has_tables_of(connection, version, steps)
    if not ours or version == 0:
        raise _Damaged("it is no store of this program, or its making was cut short")
    if not 0 < version < _NO_VERSION:
        raise _Damaged(f"its format is {version}, which no version of this program has")
    if not is_sound:
        raise _Damaged(f"its tables are not those of its format, {version}")
    if version > len(steps):
        raise StoreUnusable(
            f"the store {path} was written by a newer version of this program (its format is {version}, "
            f"the newest one known here is {len(steps)}); start that version, or use another data directory",
            path=str(path),
        )


def _connect_reading(path: Path, connect: Connect) -> sqlite3.Connection:
    return connect(f"{path.absolute().as_uri()}?mode=ro")


def _salvaged_seq(path: Path, connect: Connect) -> int:
    """What a damaged file says about the seqs given out, if it says anything; 0 = it does not."""
    try:
        with closing(_connect_reading(path, connect)) as connection:
            reserved = read_meta(connection, "reserved")
    except (sqlite3.Error, TypeError, ValueError):  # damaged in that place too
        return 0
    return reserved + _AFTER_A_CRASH if 0 <= reserved < _LARGEST_SEQ else 0


_LARGEST_SEQ = 2**53
"""Above it a number is not the same in every JSON reader."""


@contextmanager
def _damage_told() -> Iterator[None]:
    """Turn what SQLite says about damage, and values that no life of ours has written, into _Damaged."""
    try:
        yield
    except sqlite3.Error as exc:
        if is_damage(exc):
            raise _Damaged(str(exc)) from exc
        raise


@contextmanager
def _damage_of_reading_told() -> Iterator[None]:
    """The same around statements that cannot fail on an undamaged file."""
    try:
        yield
    except sqlite3.Error as exc:
        if is_damage_found_by_reading(exc):
            raise _Damaged(str(exc)) from exc
        raise
    except (TypeError, ValueError, OverflowError) as exc:
        raise _Damaged(f"it holds what cannot be read: {exc}") from exc


# --- opening and loading --------------------------------------------------------------------------------------------


def _open_file(
    path: Path,
    connect: Connect,
    steps: Sequence[Sequence[str]],
    *,
    first_seq: int | None = None,
    aside: str | None = None,
) -> Opened:
    """``first_seq`` None: the file goes on where it was left."""
    if first_seq is not None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with _damage_told():
        database = Database(path, connect)
        try:
            return _load(database, steps, first_seq, aside)
        except BaseException:
            database.close()
            raise


def _load(database: Database, steps: Sequence[Sequence[str]], first_seq: int | None, aside: str | None) -> Opened:
    connection = database.connection
    migrate(connection, steps)
    with _damage_of_reading_told():
        loaded = _read(connection, first_seq, aside)
    first_seq = loaded.first_seq
    reserved = first_seq - 1 + SEQ_BLOCK
    with database.transaction():
        if aside is not None:
            database.give_up(first_seq - 1)
        database.mark_open(reserved)
    database.refresh()
    return Opened(database, loaded, reserved)


def _read(connection: sqlite3.Connection, first_seq: int | None, aside: str | None) -> Loaded:
    was_clean = bool(read_meta(connection, "clean"))
    if not was_clean:
        _check(connection)
    reserved, _, _ = (read_meta(connection, name) for name in ("reserved", "events", "gone"))
    if not 0 <= reserved < _LARGEST_SEQ:
        raise _Damaged(f"it has given out seqs up to {reserved}, which cannot be")
    loaded = Loaded(
        sessions=_sessions(connection),
        runs=_runs(connection),
        first_seq=reserved + 1 + (0 if was_clean else _AFTER_A_CRASH) if first_seq is None else first_seq,
        set_aside=aside,
        was_clean=was_clean,
    )
    _read_through_documents(connection)
    return loaded


def _check(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _Damaged(found)


def _sessions(connection: sqlite3.Connection) -> list[SessionRow]:
    columns = "key, agent, role, transcript, created_at, updated_at, data"
    rows = connection.execute(f"SELECT {columns} FROM sessions ORDER BY rowid")  # noqa: S608  # a literal
    names = columns.split(", ")
    return [_row(SessionRow, dict(zip(names, row, strict=True))) for row in rows]


def _runs(connection: sqlite3.Connection) -> list[RunRow]:
    columns = "principal, session, run_id, body_hash, request, accepted_at, started_at, ended_at, outcome, state"
    rows = connection.execute(f"SELECT {columns} FROM runs ORDER BY rowid")  # noqa: S608  # a literal
    names = columns.split(", ")
    return [_row(RunRow, dict(zip(names, row, strict=True))) for row in rows]


def _read_through_documents(connection: sqlite3.Connection) -> None:
    """They are loaded later, by their owners; damage must be found while the file can still be set aside."""
    names = ("kind", "key", "body")
    for row in connection.execute("SELECT kind, key, body FROM documents"):
        _row(DocumentRow, dict(zip(names, row, strict=True)))


def _row(kind: type[Row], columns: dict[str, Any]) -> Row:
    """Raises ValueError for a column of a wrong type: SQLite stores any type in any column."""
    return msgspec.convert(columns, kind, builtin_types=(bytes,))
