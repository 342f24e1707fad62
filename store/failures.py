"""What can be wrong with the store's file at the moment it is needed, as one error and as a judgement of SQLite's."""

import sqlite3
from typing import ClassVar

from errors import PoolError

__all__ = ["REFUSED_ROW", "FileLost", "StoreUnusable", "is_damage", "is_damage_found_by_reading"]

REFUSED_ROW = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
    *(OverflowError, UnicodeEncodeError),
)
"""The fault of a row, not of the disk: too large, or a text or number that SQLite cannot hold."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_SUCH_THING = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
_NO_TEXT = "Could not decode to UTF-8"
_PRIMARY_CODE = 0xFF  # the low byte of an extended result code


class StoreUnusable(PoolError):
    """The store's file cannot be opened, read or written, or is of a newer version; ``details["path"]`` says which."""

    code: ClassVar[str] = "store_unusable"


class FileLost(sqlite3.OperationalError):
    """The open file is no longer the one of its name: it was removed, renamed or replaced.

    What is written to it is gone with this process, though SQLite sees nothing wrong. It is not made anew from memory:
    the store does not have what it has already written, a file with half of the sessions would pass for a sound one in
    the next life, and whoever put another file there, or wanted an empty start, would find it overwritten. So the store
    goes on in memory and says so; it recovers by itself when the very file is back.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} while it was in use; what it held is lost with this process, and nothing is stored any more: "
            "put the same file back, or restart to begin with what is there now"
        )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is broken, as opposed to a disk that refuses."""
    return _code_of(error) in _DAMAGE


def is_damage_found_by_reading(error: sqlite3.Error) -> bool:
    """The same for an error of a correct statement, where a missing table or invalid text is damage too."""
    return is_damage(error) or _code_of(error) in _NO_SUCH_THING or str(error).startswith(_NO_TEXT)


def _code_of(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE
