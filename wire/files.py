"""Files: safe opening, atomic replacement, write access of other users; and JSON in no more memory than it needs."""

import errno
import os
import pwd
import stat
from pathlib import Path

WORKSPACES_DIR = "workspaces"
"""Where the working directories of roles lie that have none of their own, in the data directory."""
LOCK_NAME = "supervisor.lock"
"""The file in a data directory by which one supervisor holds it."""


class IrregularFile(OSError):
    """There is something under that name, but no regular file."""


def open_regular(path: Path, flags: int, *, mode: int = 0o600, follow: bool = True, within: int | None = None) -> int:
    """A descriptor of a regular file, close-on-exec; never blocks, as opening a named pipe would.

    ``follow``: a link is followed, otherwise refused. ``within``: the open directory that ``path`` starts at.
    Raises OSError as ``os.open``, IrregularFile for anything but a regular file, ValueError for an impossible path.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, mode, dir_fd=within)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IrregularFile(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def replace_file(path: Path, data: bytes, *, keep_mode: bool = False, durable: bool = False) -> None:
    """Put ``data`` in the place of ``path`` in one step: readers see the old content or the new, never half of it.

    The new file is its owner's only; with ``keep_mode`` it gets owner and mode of the one that it replaces. With
    ``durable`` it survives a power cut. One writer at a time in each process. Raises OSError; then the old file stands.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if keep_mode and path.exists():
                _copy_ownership(path.stat(), descriptor)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def _copy_ownership(old: os.stat_result, descriptor: int) -> None:
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777)


def sync_directory(path: Path) -> None:
    """Force a directory's new names to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def foreign_write_access(path: Path) -> str | None:
    """Who besides this user and root can write the file, in words that follow its name; None = no one.

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
