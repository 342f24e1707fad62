"""Rows of the store, its figures, and the errors of its file. JSON in rows (``data``, ``request``, ...) stays bytes.

``array_like``: the fields of a row stand in the order of its table's columns.
"""

import sqlite3
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from errors import PoolError


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One conversation. Times are Unix times in seconds."""

    key: str
    agent: str
    role: str
    transcript: str | None
    created_at: float
    updated_at: float
    data: bytes = b"{}"


RunKey = tuple[str, str, str]
"""Principal, session, run id: what identifies a run. The run id alone is its caller's choice."""


class RunState(StrEnum):
    """How far a run has come; each step is durable before it is reported."""

    ACCEPTED = "accepted"
    STARTED = "started"
    """Its turn may have reached the worker: never to be started again."""
    ENDED = "ended"


class RunRow(msgspec.Struct, gc=False, kw_only=True, array_like=True):
    """One run; ``body_hash`` tells a repeated request from another one. Given to the store it is not changed again.

    The garbage collector does not look into it (``gc=False``), so it may hold nothing that could hold it.
    """

    principal: str
    session: str
    run_id: str
    state: RunState
    body_hash: str
    request: bytes
    accepted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: bytes | None = None

    @property
    def key(self) -> RunKey:
        """What identifies the run."""
        return (self.principal, self.session, self.run_id)


_encode = msgspec.json.Encoder().encode


def encode_compact(value: Any) -> bytes:
    """Encode ``value`` as JSON for keeping.

    The encoder hands out its buffer, which doubles as it fills: 170 kB of JSON hold 255 kB. A copy takes a microsecond.
    """
    return memoryview(_encode(value)).tobytes()


class EventRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One event; of a ``text_snapshot`` ``seq`` is the last seq that it covers. ``data`` is JSON."""

    seq: int
    ts: float
    session: str
    channel: str
    type: str
    data: bytes
    run_id: str | None = None


DocumentKey = tuple[str, str]
"""Kind and key."""


class DocumentRow(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """A small record for owners without a table of their own; ``body`` is the owner's JSON."""

    kind: str
    key: str
    body: bytes


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What the store held when it was opened, all that the gateway keeps in memory but for the documents.

    Their owners read those (``Store.read_documents``).
    """

    sessions: list[SessionRow]
    runs: list[RunRow]
    """In the order of their acceptance."""
    first_seq: int
    """The first seq that may be used: above every seq that any earlier life has given out."""
    quarantined: str | None
    """Where a damaged file was moved to, with the reason, and what such files take once they are many; None = it was
    sound, or there was none."""
    was_clean: bool
    """Whether the last life closed it; False = crash."""


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The store at one moment."""

    rows_waiting: int
    """Rows to be put or deleted that are in memory only."""
    bytes_waiting: int
    rows_written: int
    degraded: bool
    lost: int
    """Rows given up: events while the disk refused, and rows that the database cannot hold."""
    last_error: str | None


ROW_ERRORS = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
    *(OverflowError, UnicodeEncodeError),
)
"""The fault of a row, not of the disk: too large, or a text or number that SQLite cannot hold."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SCHEMA_ERRORS = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
_INVALID_TEXT = "Could not decode to UTF-8"
_PRIMARY_CODE = 0xFF  # the low byte of an extended result code


class StoreUnusable(PoolError):
    """The store's file cannot be opened, read or written, or is of a newer version; ``details["path"]`` says which."""

    code: ClassVar[str] = "store_unusable"


class FileLost(sqlite3.OperationalError):
    """The open file is no longer the one of its name: it was removed, renamed or replaced.

    What is written to it is gone with this process, though SQLite sees nothing wrong. It is not rebuilt from memory:
    the store no longer has what it has written, a file with half of the sessions would pass for a sound one in the next
    life, and a file that was put there on purpose would be overwritten. So the store goes on in memory and reports it;
    it recovers when the same file is back.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} while it was in use; what it held is lost with this process, and nothing is stored any more: "
            "put the same file back, or restart to begin with what is there now"
        )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is broken, as opposed to a disk that refuses."""
    return _code_of(error) in _DAMAGE


def is_read_damage(error: sqlite3.Error) -> bool:
    """The same for an error of a correct statement, where a missing table or invalid text is damage too."""
    return is_damage(error) or _code_of(error) in _SCHEMA_ERRORS or str(error).startswith(_INVALID_TEXT)


def _code_of(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE
