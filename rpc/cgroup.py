"""Cgroups: one per worker (v2) to find and kill all of its processes, and the memory limit of our own (v1 and v2).

Standard library only: the guard process imports it. Without the rights these functions return None or False, and the
caller relies on markers and ancestry. All of it blocks (attaching a process took 14 ms the first time, 0.1 ms later),
so the event loop calls it in a thread.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_PREFIX = "pool-"


class CgroupLocation(NamedTuple):
    """Where a cgroup lies in the file system, and where its hierarchy is mounted, the cgroup's parents in between."""

    path: Path
    mount: Path


def find_cgroup(mountinfo: str, membership: str, controller: str = "") -> CgroupLocation | None:
    """Where our own cgroup lies, from the texts of /proc/self/mountinfo and /proc/self/cgroup.

    In cgroup v2, or in the hierarchy of a ``controller`` of v1. It may be mounted anywhere (``/sys/fs/cgroup``,
    ``/sys/fs/cgroup/unified``), and only a part of it may be (a container sees the mount's root as ``/``).
    """
    own = next((path for names, path in _memberships(membership) if controller in names.split(",")), None)
    if own is None:
        return None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, *options) = left.split(" "), right.split(" ")
        is_it = controller in options[-1].split(",") if controller and options else kind == "cgroup2"
        if not is_it or (controller and kind != "cgroup") or len(fields) < 5:
            continue
        root, mount = _unescape(fields[3]), _unescape(fields[4])
        if (Path("/") / own).is_relative_to(root):
            return CgroupLocation(Path(mount) / Path(own).relative_to(root), Path(mount))
    return None


def _memberships(membership: str) -> list[tuple[str, str]]:
    """The controllers ("" in v2) and the path of each line."""
    lines = [line.split(":", 2) for line in membership.splitlines()]
    return [(line[1], line[2]) for line in lines if len(line) == 3]


def own_cgroup(controller: str = "") -> CgroupLocation | None:
    """Where our own cgroup lies; see ``find_cgroup``. None also where the system does not say."""
    try:
        return find_cgroup(_read("/proc/self/mountinfo"), _read("/proc/self/cgroup"), controller)
    except OSError:
        return None


def _read(path: str) -> str:
    """Names of mount points are bytes, not always UTF-8."""
    return os.fsdecode(Path(path).read_bytes())


def _unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, char)
    return text


class Cgroup:
    """A cgroup that we made and may kill: one for the supervisor's instance, below it one per worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def for_instance(cls, instance: str) -> Self | None:
        """Make the cgroup of a supervisor; None where cgroup v2, the rights or ``cgroup.kill`` are missing."""
        own = own_cgroup()
        return cls.make(own.path / f"{_PREFIX}{instance}") if own is not None else None

    @classmethod
    def from_previous(cls, instance: str, path: Path) -> Self | None:
        """The cgroup of an earlier supervisor; None if it has not the name of one, for all in it will be killed."""
        return cls(path) if path.name == f"{_PREFIX}{instance}" else None

    def for_worker(self, worker_id: str) -> Self | None:
        """Make the cgroup of one worker; None when that is not possible (any more)."""
        if not worker_id or worker_id.startswith((".", "cgroup.")) or "/" in worker_id:
            raise ValueError(f"{worker_id!r} cannot be the name of a cgroup")
        return type(self).make(self.path / worker_id)

    @classmethod
    def make(cls, path: Path) -> Self | None:
        """Make the directory of a cgroup; None, and no directory, where it could not be used to kill."""
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return None
        cgroup = cls(path)
        if os.access(path / "cgroup.kill", os.W_OK) and os.access(path / "cgroup.procs", os.W_OK):
            return cgroup
        cgroup.remove()
        return None

    def add(self, pid: int) -> bool:
        """Move a process here; children that it has already stay outside. False when the kernel refuses."""
        return self._write("cgroup.procs", str(pid))

    def kill(self) -> bool:
        """Kill every process in this cgroup and below, in one step that no fork escapes. It does not wait."""
        return self._write("cgroup.kill", "1")

    def wait_empty(self, timeout: float) -> bool:
        """Block until no process is left here or below, for ``timeout`` seconds at most; whether none is."""
        deadline = time.monotonic() + timeout
        try:
            fd = os.open(self.path / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True  # the cgroup itself is gone
        try:
            poll = select.poll()
            poll.register(fd, select.POLLPRI)
            while b"populated 1" in os.pread(fd, 4096, 0):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                poll.poll(remaining * 1000)
        except OSError:
            return True  # removed while we looked
        finally:
            os.close(fd)
        return True

    def remove(self) -> bool:
        """Remove this cgroup and those below it; False while a process is left in one of them."""
        try:
            for child in self.path.iterdir():
                if child.is_dir():
                    child.rmdir()
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _write(self, name: str, text: str) -> bool:
        with suppress(OSError):  # said by the answer
            (self.path / name).write_text(text)
            return True
        return False


class OrphanGuarantee(NamedTuple):
    """How surely a worker's descendants are found: ``cgroup``, ``subreaper``, ``marker`` or ``none``, in words too."""

    level: str
    description: str


def orphan_guarantee(*, cgroup: bool, subreaper: bool, limit_mark: bool) -> OrphanGuarantee:
    """What holds here: whether an instance cgroup could be made, we are the subreaper, limits can be marks."""
    if cgroup:
        return OrphanGuarantee(
            "cgroup", "every process of a worker is killed with it, whatever it did to hide (cgroup v2)"
        )
    if not Path("/proc/self/environ").exists():
        return OrphanGuarantee(
            "none", "processes that leave a worker's process tree are not found: this platform has no /proc"
        )
    escape = (
        "clears its environment" + (", sets the limit RLIMIT_RTTIME" if limit_mark else "") + " and detaches itself"
    )
    if subreaper:
        return OrphanGuarantee(
            "subreaper",
            f"a worker's processes are found by descent and by their marks; one that {escape} is found only when the "
            "supervisor stops in order",
        )
    return OrphanGuarantee("marker", f"a worker's processes are found by their marks; one that {escape} is not")


_V1, _V2 = "memory.limit_in_bytes", "memory.max"
_OOM_ADDED, _OOM_MOST = 500, 1000
"""Of a thousandth of all memory each: a worker counts as if it had half of that more than the supervisor."""


class MemoryLimit(NamedTuple):
    """The lowest limit of a cgroup and its parents, in bytes, and the file that sets it."""

    size: int
    file: Path


def memory_limit(find: Callable[[str], CgroupLocation | None] = own_cgroup) -> MemoryLimit | None:
    """The limit that holds here; None where none is set, or where there are no cgroups."""
    found = [
        limit for controller, name in (("", _V2), ("memory", _V1)) for limit in _cgroup_limits(find(controller), name)
    ]
    return min(found, default=None)


def _cgroup_limits(place: CgroupLocation | None, name: str) -> Iterator[MemoryLimit]:
    """Those of the cgroup and its parents. The number by which version 1 means none is larger than any memory."""
    if place is None:
        return
    for directory in (place.path, *place.path.parents):
        file = directory / name
        with suppress(OSError, ValueError):  # the root of version 2 has no such file, and "max" is none
            yield MemoryLimit(int(file.read_text()), file)
        if directory == place.mount:
            return


def raise_oom_score(pid: int) -> None:
    """Have the kernel end this process, and what it starts, before us where memory is short.

    Where it cannot be said (there is no such file, or the program has rights of its own) the kernel decides by size.
    """
    with suppress(OSError, ValueError):
        own = int(Path("/proc/self/oom_score_adj").read_text())
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(min(own + _OOM_ADDED, _OOM_MOST)))
