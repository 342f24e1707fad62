"""Safe open, atomic replace, fsync of directories.

Opening a file in whose place others may have put something else: who opens a named pipe may wait for ever.

JSON that is kept for a while, in no more memory than it needs. Pure.

Who decides what a file holds: its owner and mode, and where it lies.
"""

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import msgspec


class IrregularFile(OSError):
    """There is something under that name, but no regular file."""


def open_regular(path: Path, flags: int, *, mode: int = 0o600, follow: bool = True) -> int:
    """A descriptor of a regular file, close-on-exec. ``follow``: a link is gone after, otherwise refused.

    Raises OSError as ``os.open``, IrregularFile for what is none; ValueError for a path that can be none.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IrregularFile(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


_encode = msgspec.json.Encoder().encode


def encode_compact(value: Any) -> bytes:
    """Encode ``value``: for what outlives the step it is made in.

    The encoder writes into a buffer that doubles as it fills, and hands that out as it is: an answer of 170 kB holds
    255 kB for as long as anybody holds the answer. A copy takes a microsecond.
    """
    return memoryview(_encode(value)).tobytes()


def foreign_write_access(path: Path) -> str | None:
    """Who else can write the file, in words that follow its name, with owner and mode; None = only this user and root.

    A link and its target are both checked. Write access of this user's own group is allowed. Raises OSError.
    """
    for status in (path.lstat(), path.stat()):
        mode = "" if stat.S_ISLNK(status.st_mode) else f", mode {stat.S_IMODE(status.st_mode):04o}"
        if status.st_uid not in (0, os.geteuid()):
            return f"belongs to {_user_name(status.st_uid)}{mode}"
        if mode and status.st_mode & stat.S_IWOTH:
            return f"can be written by every user (owner {_user_name(status.st_uid)}{mode})"
        if mode and status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
            return f"can be written by the group {status.st_gid} (owner {_user_name(status.st_uid)}{mode})"
    return None


def real_paths(path: str) -> tuple[Path, Path]:
    """The real path of a file, and that of its name: a link can be replaced as well as its target."""
    given = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would follow the link itself
    return Path(os.path.realpath(given)), Path(os.path.realpath(given.parent)) / given.name


def _user_name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"the uid {uid}"
