"""A mark that no program drops by accident: a resource limit, which every descendant inherits. Linux only.

The environment is lost where a tool clears it, descent and session where it detaches itself, open pipes where it closes
them. The soft limit of real-time CPU time (``RLIMIT_RTTIME``, microseconds) survives all of that. As a number that
stands for 73,000 years it limits nothing, and holds which worker of which supervisor this is. A process loses it only
by setting this very limit. Standard library only: the guard process imports it.
"""

import os
import resource
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

_RLIMIT: int | None = getattr(resource, "RLIMIT_RTTIME", None) if sys.platform.startswith("linux") else None
_FLAG = 1 << 61  # no limit that is meant as one is as large; 32 bits of instance and 24 of worker stand below it
_WORKER_BITS = 24
_MAX_DIGITS = 8  # of 2**24


def mark_number(marker: str) -> int:
    """The number for ``<instance>:<worker id>``.

    It stands for the instance alone where there is no worker id, or one that is no ``w`` with a number below 2**24.
    """
    instance, _, worker = marker.partition(":")
    digits = worker.removeprefix("w")
    number = int(digits) if digits.isdecimal() and len(digits) <= _MAX_DIGITS else 0
    return _FLAG | zlib.crc32(instance.encode()) << _WORKER_BITS | (number if number < 1 << _WORKER_BITS else 0)


def instance_number(number: int) -> int:
    """The same number without the worker."""
    return number >> _WORKER_BITS << _WORKER_BITS


def mark_by_rlimit(pid: int, marker: str) -> bool:
    """Mark a child of ours, and so all that it starts from now on; whether that could be done."""
    return _set_rlimit(pid, mark_number(marker))


@contextmanager
def marking_children(marker: str) -> Iterator[None]:
    """Mark each child of this process from its first instruction on, while the block runs.

    The child inherits the limit that this process carries for that time. A mark set after the start would come too late
    for what a fast child has started by then. Where the limit is not free, the block runs without a mark.
    """
    me = os.getpid()
    before = resource.getrlimit(_RLIMIT) if _RLIMIT is not None else (0, 0)
    marked = mark_by_rlimit(me, marker)
    try:
        yield
    finally:
        if marked and _RLIMIT is not None:
            resource.setrlimit(_RLIMIT, before)


def clear_rlimit_mark(pid: int) -> bool:
    """Take the mark from a child that has inherited ours, and is to outlive what we belong to."""
    return _set_rlimit(pid, resource.RLIM_INFINITY)


def can_mark_by_rlimit() -> bool:
    """Whether children of ours can be marked: on Linux, unless a limit of real-time CPU time is set."""
    return _RLIMIT is not None and _is_free(*resource.getrlimit(_RLIMIT))


def rlimit_mark_of(pid: int) -> int | None:
    """The mark of a process, also of a zombie and of one that is inside exec; None where it has none.

    Of another user's process, a setuid program's among them, nothing is known.
    """
    try:
        soft = resource.prlimit(pid, _RLIMIT)[0] if _RLIMIT is not None else 0
    except OSError:
        return None  # gone, or not ours to look at
    return soft if _FLAG <= soft < _FLAG << 1 else None


def _set_rlimit(pid: int, number: int) -> bool:
    if _RLIMIT is None:
        return False
    try:
        soft, hard = resource.prlimit(pid, _RLIMIT)
        if not _is_free(soft, hard):
            return False
        resource.prlimit(pid, _RLIMIT, (number, hard))
    except OSError:
        return False  # it has ended, or has rights of its own, as a setuid program
    return True


def _is_free(soft: int, hard: int) -> bool:
    """Whether it is free for a mark: unlimited, or an inherited mark."""
    return hard == resource.RLIM_INFINITY and (soft == hard or soft >= _FLAG)
