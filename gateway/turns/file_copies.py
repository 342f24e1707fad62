"""Copies of files that answers hand over and that lie on a node: clients find them on this machine."""

import os
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import trio

from errors import PoolError
from gateway.turns.media import MAX_FILE_BYTES, Media, media_type
from wire.files import replace_file

Fetch = Callable[[str, int], Awaitable[bytes]]
"""Reads at most a number of bytes of a file in a worker's directory; see ``rpc.transport.NodeProcess``."""

MEDIA_DIR = "media"
"""Where they lie in the data directory."""
_MAX_TOTAL_BYTES = 1024**3
_MAX_COPIES = 1_000
_MAX_NAME_CHARS = 50
_PATIENCE = 30.0  # seconds for the files of one text; what has not come by then stays text


class FileCopies:
    """The copies in one directory, named by content and name; the oldest make room for new ones."""

    def __init__(self, directory: Path, *, total: int = _MAX_TOTAL_BYTES, most: int = _MAX_COPIES) -> None:
        self._directory = directory
        self._total, self._most = total, most
        self._writing = trio.Lock()

    async def copy(self, names: list[str], fetch: Fetch, known: dict[str, Media]) -> None:
        """Copy these files and add them to ``known``; those that cannot be had, or may not be shown, are left out."""
        with trio.move_on_after(_PATIENCE):
            for name in names:
                found = None if name in known else await self._copy(name, fetch)
                if found is not None:
                    known[name] = found

    async def _copy(self, name: str, fetch: Fetch) -> Media | None:
        mime_type = media_type(name)
        if mime_type is None:
            return None
        try:
            data = await fetch(name, MAX_FILE_BYTES + 1)
        except (OSError, ValueError, PoolError):  # missing, no regular file, outside, its node lost: all mean no file
            return None
        if len(data) > MAX_FILE_BYTES:
            return None
        async with self._writing:
            path = await trio.to_thread.run_sync(self._write, name, data)
        return Media(str(path), mime_type, len(data))

    def _write(self, name: str, data: bytes) -> Path:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f"{sha256(data).hexdigest()[:16]}-{Path(name).name[-_MAX_NAME_CHARS:]}"
        replace_file(path, data)
        self._make_room(path)
        return path

    def _make_room(self, newest: Path) -> None:
        with os.scandir(self._directory) as entries:
            files = sorted((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries)
        left, count = sum(size for _, size, _ in files), len(files)
        for _, size, path in files:
            if (left <= self._total and count <= self._most) or path == str(newest):
                return
            Path(path).unlink(missing_ok=True)
            left, count = left - size, count - 1
