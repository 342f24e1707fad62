"""Which workers' log files are kept, and who waits for their growth."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from wire.log_file import log_names, log_path, rotated_path


class LogChanges:
    """Wakes those who read log files while they grow. For the event loop's thread."""

    def __init__(self) -> None:
        self._watches: set[LogWatch] = set()

    @property
    def is_watched(self) -> bool:
        """Whether someone waits. From any thread."""
        return bool(self._watches)

    def note(self, name: str) -> None:
        """The log of that name has grown."""
        for watch in self._watches:
            watch.add(name)

    @contextmanager
    def watch(self) -> Iterator["LogWatch"]:
        """Collect the names of logs that grow, as long as the block lasts."""
        watch = LogWatch()
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)


class LogWatch:
    """Names of logs that have grown since the last ``wait``, each once: however slow the reader is, no more wait."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._has_names = trio.Event()

    def add(self, name: str) -> None:
        """Remember a name."""
        self._names[name] = None
        self._has_names.set()

    async def wait(self) -> list[str]:
        """Wait until one has grown; the names of all that have, in that order."""
        await self._has_names.wait()
        names, self._names, self._has_names = list(self._names), {}, trio.Event()
        return names


class WorkerLogs:
    """The log files of one data directory, those of earlier supervisors included.

    The files of living workers stay; of the others the ones of those that ended last.
    """

    def __init__(self) -> None:
        self._ended: dict[Path, None] | None = None
        """Of workers that have ended, the oldest first; None as long as the directory has not been looked at."""
        self._living: set[Path] = set()

    def open(self, directory: Path, worker_id: str, kept: int) -> Path:
        """The file for a new worker; of workers that have ended the oldest make room, so that ``kept`` are there."""
        if self._ended is None:
            self._ended = {log_path(directory, name): None for name in log_names(directory)}
        log = log_path(directory, worker_id)
        self._ended.pop(log, None)
        self._living.add(log)
        while self._ended and len(self._ended) + len(self._living) > kept:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            for path in (oldest, rotated_path(oldest)):
                path.unlink(missing_ok=True)
        return log

    def close(self, log: Path) -> None:
        """The worker has ended; its log is kept until later ones need the room."""
        self._living.discard(log)
        if self._ended is not None:
            self._ended[log] = None
