"""Standard streams that whoever started us has closed: ``/dev/null`` before anything else takes their numbers."""

import errno
import io
import os
import sys

__all__ = ["CANNOT_WRITE", "drop_output", "fill_standard_streams", "replace_what_cannot_be_encoded"]

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of an output that is full or closed: reported in one line, without a traceback."""

_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def fill_standard_streams() -> None:
    """Open ``/dev/null`` for each of the descriptors 0 to 2 that was closed when Python started.

    Else the next socket or file would get the number, be taken for a terminal, and reach every child as its stdin,
    stdout or stderr; and Python has None where a stream should be. Call it before anything else opens a file.
    """
    for fd, name, mode in _STREAMS:
        if getattr(sys, name) is None:
            _open_null(fd)
            setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8"))


def drop_output() -> None:
    """Discard what stdout and stderr still hold if it cannot be written.

    Python would try again at its exit, with an error message and an exit code of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, stream.fileno())
            os.close(null)


def replace_what_cannot_be_encoded() -> None:
    """Show a question mark for a character that stdout or stderr has no code for, instead of failing at it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _open_null(fd: int) -> None:
    """At exactly this number, and kept by children as a standard stream is."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == fd:
        os.set_inheritable(fd, True)  # noqa: FBT003  # positional-only
    else:
        os.dup2(null, fd)
        os.close(null)
