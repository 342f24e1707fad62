"""The versions of files that the agent last read or wrote, and which have changed since."""

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
"""Larger files are compared by time and size alone."""
_RACY_NS = 50_000_000
"""Two writes this close (nanoseconds) can bear the same time: a file system's clock ticks every few milliseconds."""


class FileVersion(NamedTuple):
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

    def same_content(self, other: "FileVersion") -> bool:
        """Whether both are of the same content: for hashed files exactly, for large ones by time and size."""
        if self.digest is None or other.digest is None:
            return (self.mtime, self.size) == (other.mtime, other.size)
        return self.digest == other.digest


def version_of(status: os.stat_result, digest: bytes | None) -> FileVersion:
    """The stamp of content that was read after ``status`` was taken (in this order, or a change between is missed)."""
    settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS
    return FileVersion(status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, settled, digest)


def digest_of(data: bytes) -> bytes:
    """What stands for a content."""
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, for which a start should not wait

    return blake2b(data, digest_size=16).digest()


class _TrackedFile(NamedTuple):
    known: FileVersion
    """As the agent saw it."""
    reported: FileVersion | None = None
    """As it was when its change was reported."""
    reported_missing: bool = False


class FileTracker:
    """One conversation's files, by real path. Used from the event loop's thread only; it waits for disks in threads."""

    def __init__(self, tracked: int = TRACKED_FILES) -> None:
        self._tracked = tracked
        self._entries: OrderedDict[str, _TrackedFile] = OrderedDict()
        self._locks: dict[str, tuple[trio.Lock, int]] = {}

    def record(self, path: str, stamp: FileVersion) -> None:
        """Record the version that the agent has just read or written."""
        self._entries[path] = _TrackedFile(stamp)
        self._entries.move_to_end(path)
        while len(self._entries) > self._tracked:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all files: another conversation begins."""
        self._entries.clear()

    def last_seen(self, path: str) -> FileVersion | None:
        """The version that the agent last saw; None: none, or not for a long time."""
        entry = self._entries.get(path)
        return None if entry is None else entry.known

    async def find_changed(self) -> list[str]:
        """Known files that others have changed or removed; each change once, in order of use."""
        before = list(self._entries.items())
        if not before:
            return []
        seen = await trio.to_thread.run_sync(_check_files, before, abandon_on_cancel=True)
        changed = []
        for (path, entry), now in zip(before, seen, strict=True):
            if now is None or self._entries.get(path) is not entry:  # as it was; or used again in the meantime
                continue
            self._entries[path] = now
            if now.reported is not None or now.reported_missing:
                changed.append(path)
        return changed

    @asynccontextmanager
    async def write_lock(self, path: str) -> AsyncIterator[None]:
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


def _check_files(entries: list[tuple[str, _TrackedFile]]) -> list[_TrackedFile | None]:
    looks = []
    for path, entry in entries:
        trio.from_thread.check_cancelled()
        looks.append(_check_file(path, entry))
    return looks


def _check_file(path: str, entry: _TrackedFile) -> _TrackedFile | None:
    """The entry as it should be from now on; None when there is nothing new."""
    try:
        status = Path(path).lstat()
        if not entry.reported_missing and (entry.reported or entry.known).same_file(status):
            return None
        now = (
            _read_version(path) if stat.S_ISREG(status.st_mode) else version_of(status, b"")
        )  # another kind has no content
    except OSError:  # removed, or out of reach: either way it is not what the agent saw
        return None if entry.reported_missing else _TrackedFile(entry.known, reported_missing=True)
    if now.same_content(entry.known):
        return _TrackedFile(now)
    if entry.reported is not None and now.same_content(entry.reported):
        return None
    return _TrackedFile(entry.known, reported=now)


def _read_version(path: str) -> FileVersion:
    """Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return version_of(status, b"")
        if status.st_size > HASHED_BYTES:
            return version_of(status, None)
        return version_of(status, digest_of(file.read(HASHED_BYTES + 1)))
