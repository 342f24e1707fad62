"""Process facts from /proc: identity, parents, environment, marker. Standard library only: the guard imports it.

The kernel reuses the pid of a reaped process, so a process is identified by pid *and* start time (across reboots, by
the boot id too). Every reader returns None or an empty collection for a process that is gone or may not be read, and on
a platform without /proc.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

MARKER_VARIABLE = "POOL_WORKER_ID"
"""The environment variable that every worker is given and every descendant inherits; ``<instance>:<worker id>``."""

_EXITING = 0x4  # flags in /proc/PID/stat
_KERNEL_THREAD = 0x200000
EXEC_TIMEOUT = 1.0
"""Seconds that a process may take inside exec."""
_POLL_INTERVAL = 0.001  # seconds between two looks at it
_READ_SIZE = 64 * 1024
_MAX_ENVIRONMENT_BYTES = 8 * 1024 * 1024  # the kernel allows arguments and environment together 6 MiB


class ProcessStat(NamedTuple):
    """What matters of /proc/PID/stat; ``start_time`` in clock ticks since boot, ``state`` a letter (Z, T, R, S...).

    ``lacks_environment``: it has no environment set up, although it is neither dying nor a kernel thread: inside exec.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_time: int
    lacks_environment: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether it is a zombie, or being removed."""
        return self.state in "ZX"


class ProcessIdentity(NamedTuple):
    """One process, for ever: no other one will ever have the same pid, start time and boot id.

    ``start_time`` is in clock ticks since boot, 0 where the platform does not say. ``marker`` is what the process
    carries in ``POOL_WORKER_ID``, empty for a child that is no worker.
    """

    pid: int
    start_time: int
    boot_id: str
    marker: str = ""


def boot_time() -> float:
    """Seconds since the machine was booted, those included in which it was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_stat(pid: int) -> ProcessStat | None:
    """State, parent, session and start time of a process; also of a zombie."""
    raw = _read_or_empty(f"/proc/{pid}/stat")
    return parse_stat(raw) if raw else None


def parse_stat(raw: bytes) -> ProcessStat | None:
    """Read the text of /proc/PID/stat."""
    fields = _stat_fields(raw)
    if len(fields) < 49:
        return None
    return ProcessStat(
        pid=int(raw.partition(b" ")[0]),
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_time=int(fields[19]),
        lacks_environment=int(fields[48]) == 0 and not int(fields[6]) & (_EXITING | _KERNEL_THREAD),
    )


class ProcessUsage(NamedTuple):
    """What a process uses: resident bytes, and CPU seconds so far."""

    rss: int
    cpu: float


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_usage(pid: int) -> ProcessUsage | None:
    """What a living process uses; None for a zombie."""
    fields = _stat_fields(_read_or_empty(f"/proc/{pid}/stat"))
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessUsage(rss=int(fields[21]) * _PAGE_BYTES, cpu=ticks / _TICKS_PER_SECOND)


class ProcessRef(NamedTuple):
    """A process seen in a scan, to be found again by pid and start time."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, stat: ProcessStat) -> "ProcessRef":
        """The reference that identifies the process of this row."""
        return cls(stat.pid, stat.start_time)

    def is_alive(self) -> bool:
        """Whether this very process still lives; a zombie does not."""
        stat = read_stat(self.pid)
        return stat is not None and stat.start_time == self.start_time and not stat.is_dead

    def open_pidfd(self) -> int | None:
        """A pidfd of this very process; None when it has ended. Raises OSError, AttributeError without pidfds.

        A pidfd stays with the process it was opened on, and its identity is checked afterwards: a signal sent through
        it never reaches a process that has the pid by now.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.is_alive():
            return descriptor
        os.close(descriptor)
        return None


def read_environment(pid: int, until: float | None = None) -> bytes:
    """The environment that the process was started with, ``NAME=value`` pairs with NUL after each.

    Empty for a zombie, and for a process that is gone or may not be read. Inside exec a process has left one program's
    memory and not yet entered the next one's, and its environment reads as empty (this begins before the parent's vfork
    returns). Such a process may be waiting for a CPU, so this blocks ``until`` that time (``time.monotonic``), or for
    ``EXEC_TIMEOUT``.
    """
    is_settled = False
    deadline = time.monotonic() + EXEC_TIMEOUT if until is None else until
    while True:
        try:
            environment = _read_file(f"/proc/{pid}/environ")
        except OSError:
            return b""
        if environment or is_settled or time.monotonic() >= deadline:
            return environment
        stat = read_stat(pid)
        is_settled = stat is None or not stat.lacks_environment  # then a second look: exec may just have ended
        if not is_settled:
            time.sleep(_POLL_INTERVAL)


def _stat_fields(raw: bytes) -> list[bytes]:
    """The fields after the command name, which may contain blanks, brackets and line feeds."""
    return raw[raw.rfind(b")") + 2 :].split()


def marker_of(pid: int, until: float | None = None) -> str | None:
    """The marker in a process's environment, None without one; blocks as ``read_environment``."""
    return parse_marker(read_environment(pid, until))


def parse_marker(environment: bytes) -> str | None:
    """Find the marker in NUL-separated ``NAME=value`` pairs."""
    name = MARKER_VARIABLE.encode() + b"="
    if not environment.startswith(name):
        name = b"\0" + name
    _, found, rest = environment.partition(name)
    return rest.partition(b"\0")[0].decode("utf-8", "surrogateescape") if found else None


def boot_id() -> str:
    """Which boot of the machine this is; empty where the platform does not say."""
    return _read_or_empty("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def machine_id() -> str:
    """Which installation of a system this is, the same after each boot; empty where the platform does not say."""
    return _read_or_empty("/etc/machine-id").decode("ascii", "replace").strip()[:64]


def identify(pid: int, marker: str = "") -> ProcessIdentity:
    """The identity of a child of ours that is not reaped yet (so that its pid cannot have changed hands)."""
    stat = read_stat(pid)
    return ProcessIdentity(pid, stat.start_time if stat else 0, boot_id(), marker)


def all_pids() -> list[int]:
    """Every process that can be seen, zombies included."""
    return [int(name) for name in _list_directory("/proc") if name.isdigit()]


def children_of(pid: int) -> set[int]:
    """Direct children, those of every thread: the kernel keeps one list per thread that forked."""
    children: set[int] = set()
    readable = False
    for task in _list_directory(f"/proc/{pid}/task"):
        try:
            children.update(map(int, _read_file(f"/proc/{pid}/task/{task}/children").split()))
            readable = True
        except OSError:
            continue  # that thread has ended; its children belong to another thread by now
    if readable or read_stat(pid) is None:
        return children
    return {stat.pid for stat in map(read_stat, all_pids()) if stat and stat.parent == pid}


def descendants_of(roots: Iterable[int]) -> Iterator[ProcessStat]:
    """All living children, grandchildren and so on of ``roots``, parents before children, the roots left out."""
    waiting = list(roots)
    seen = set(waiting)
    while waiting:
        parent = waiting.pop()
        for child in children_of(parent) - seen:
            seen.add(child)
            stat = read_stat(child)
            if stat is not None and stat.parent == parent:  # else it died meanwhile and its pid is another's
                waiting.append(child)
                yield stat


def open_files(pid: int) -> frozenset[str]:
    """What a process has open: paths, and ``pipe:[INODE]`` and the like for what has none."""
    directory = f"/proc/{pid}/fd"
    found = set()
    for name in _list_directory(directory):
        with suppress(OSError):  # closed meanwhile
            found.add(os.readlink(f"{directory}/{name}"))  # noqa: PTH115  # a Path object for each costs as much again
    return frozenset(found)


def _list_directory(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  # a Path object per process would double the cost of a scan
    except OSError:
        return []  # the process is gone, or there is no /proc


def _read_or_empty(path: str) -> bytes:
    try:
        return _read_file(path)
    except OSError:
        return b""  # gone, or another user's: either way nothing is known about it


def _read_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        size = 0
        while size < _MAX_ENVIRONMENT_BYTES and (chunk := os.read(fd, _READ_SIZE)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)
