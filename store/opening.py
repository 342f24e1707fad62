"""Opening the store: check the file, set a damaged one aside, migrate an older one, refuse a newer one, load it."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from store.damage import burden_aside, damage_in_headers, journal, set_aside, sidecars
from store.database import Connect, Database, connect_to, read_meta
from store.failures import StoreUnusable, is_damage, is_damage_found_by_reading
from store.records import DocumentRow, Loaded, RunRow, SessionRow
from store.schema import APPLICATION_ID, STEPS, has_tables_of, migrate, version_of

__all__ = ["SEQ_BLOCK", "Opened", "open_database"]

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
