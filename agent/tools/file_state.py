"""What the agent knows of files: how each one was when it last read or wrote it, and which have changed since."""

import os
import stat
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import trio

TRACKED_FILES = 1000
"""The least recently used are forgotten; a forgotten file counts as never read."""
HASHED_BYTES = 8 * 1024 * 1024
"""Larger files are told apart by time and size alone."""
_RACY_NS = 50_000_000
"""Two writes this close (nanoseconds) can bear the same time: a file system's clock ticks every few milliseconds."""


class Stamp(NamedTuple):
    """A file at one moment. Times in nanoseconds; ``digest`` None: the file is too large to be hashed."""

    inode: int
    mtime: int
    ctime: int
    size: int
    settled: bool
    """Whether a later change must show in the times: the last one lay far enough back when this was taken."""
    digest: bytes | None

    def same_file(self, status: os.stat_result) -> bool:
        """Whether the file is certainly as it was, by its times alone."""
        now = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        return self.settled and now == self[:4]

    def same_content(self, other: "Stamp") -> bool:
        """Whether both are of the same content: for hashed files exactly, for large ones by time and size."""
        if self.digest is None or other.digest is None:
            return (self.mtime, self.size) == (other.mtime, other.size)
        return self.digest == other.digest


def stamp_of(status: os.stat_result, digest: bytes | None) -> Stamp:
    """The stamp of content that was read after ``status`` was taken (in this order, or a change between is missed)."""
    settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS
    return Stamp(status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, settled, digest)


def digest_of(data: bytes) -> bytes:
    """What stands for a content."""
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, for which a start should not wait

    return blake2b(data, digest_size=16).digest()


class _Entry(NamedTuple):
    known: Stamp
    """As the agent saw it."""
    told: Stamp | None = None
    """As it was when its change was told."""
    told_gone: bool = False


class FileLedger:
    """One conversation's files, by real path. Used from the event loop's thread only; it waits for disks in threads."""

    def __init__(self, tracked: int = TRACKED_FILES) -> None:
        self._tracked = tracked
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._locks: dict[str, tuple[trio.Lock, int]] = {}

    def note(self, path: str, stamp: Stamp) -> None:
        """The agent has just read or written the file; this is how it is now."""
        self._entries[path] = _Entry(stamp)
        self._entries.move_to_end(path)
        while len(self._entries) > self._tracked:
            self._entries.popitem(last=False)

    def forget_all(self) -> None:
        """Another conversation begins: it has seen nothing."""
        self._entries.clear()

    def known(self, path: str) -> Stamp | None:
        """How the agent has last seen the file; None: it has not, or not for a long time."""
        entry = self._entries.get(path)
        return None if entry is None else entry.known

    async def changed(self) -> list[str]:
        """Paths of known files that others have changed or removed; each change is told once, in order of use."""
        before = list(self._entries.items())
        if not before:
            return []
        seen = await trio.to_thread.run_sync(_look_at_all, before, abandon_on_cancel=True)
        changed = []
        for (path, entry), now in zip(before, seen, strict=True):
            if now is None or self._entries.get(path) is not entry:  # as it was; or used again in the meantime
                continue
            self._entries[path] = now
            if now.told is not None or now.told_gone:
                changed.append(path)
        return changed

    @asynccontextmanager
    async def writing(self, path: str) -> AsyncIterator[None]:
        """One writer at a time for a file, in the order they came."""
        lock, users = self._locks.get(path, (trio.Lock(), 0))
        self._locks[path] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(path)
            if users > 1:
                self._locks[path] = (lock, users - 1)


def _look_at_all(entries: list[tuple[str, _Entry]]) -> list[_Entry | None]:
    looks = []
    for path, entry in entries:
        trio.from_thread.check_cancelled()
        looks.append(_look(path, entry))
    return looks


def _look(path: str, entry: _Entry) -> _Entry | None:
    """The entry as it should be from now on; None when there is nothing new."""
    try:
        status = Path(path).lstat()
        if not entry.told_gone and (entry.told or entry.known).same_file(status):
            return None
        now = _stamp_at(path) if stat.S_ISREG(status.st_mode) else stamp_of(status, b"")  # another kind has no content
    except OSError:  # removed, or out of reach: either way it is not what the agent saw
        return None if entry.told_gone else _Entry(entry.known, told_gone=True)
    if now.same_content(entry.known):
        return _Entry(now)
    if entry.told is not None and now.same_content(entry.told):
        return None
    return _Entry(entry.known, told=now)


def _stamp_at(path: str) -> Stamp:
    """Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return stamp_of(status, b"")
        if status.st_size > HASHED_BYTES:
            return stamp_of(status, None)
        return stamp_of(status, digest_of(file.read(HASHED_BYTES + 1)))
