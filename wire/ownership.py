"""Who decides what a file holds: its owner and mode, and where it lies."""

import os
import pwd
import stat
from pathlib import Path

__all__ = ["places_of", "writable_by_others"]


def writable_by_others(path: Path) -> str | None:
    """Who else can write the file, in words that follow its name, with owner and mode; None = only this user and root.

    A link and its target are both checked. Write access of this user's own group is allowed. Raises OSError.
    """
    for status in (path.lstat(), path.stat()):
        mode = "" if stat.S_ISLNK(status.st_mode) else f", mode {stat.S_IMODE(status.st_mode):04o}"
        if status.st_uid not in (0, os.geteuid()):
            return f"belongs to {_name_of(status.st_uid)}{mode}"
        if mode and status.st_mode & stat.S_IWOTH:
            return f"can be written by every user (owner {_name_of(status.st_uid)}{mode})"
        if mode and status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
            return f"can be written by the group {status.st_gid} (owner {_name_of(status.st_uid)}{mode})"
    return None


def places_of(path: str) -> tuple[Path, Path]:
    """The real path of a file, and that of its name: a link can be replaced as well as its target."""
    given = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would follow the link itself
    return Path(os.path.realpath(given)), Path(os.path.realpath(given.parent)) / given.name


def _name_of(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"the uid {uid}"
