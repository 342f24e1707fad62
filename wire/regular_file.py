"""Opening a file in whose place others may have put something else: who opens a named pipe may wait for ever."""

import errno
import os
import stat
from pathlib import Path

__all__ = ["IrregularFile", "open_regular"]


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
