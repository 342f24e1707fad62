"""The supervisor's log on disk: ``logs/supervisor.log`` in the data directory, whatever standard error is."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from doors.locations import make_private_dir
from rpc.stderr_log import LineLog
from wire.log_file import SUPERVISOR_LOG, log_path

FILE_BYTES = 4 * 1024 * 1024
"""A file of this size is rotated; two are kept."""


class LogFile:
    """Appends lines from any thread; a full disk drops them, and never holds the supervisor up for longer than a write.

    Where standard output and error are this file (``pool run --detach``), they follow it when it is rotated: what the
    interpreter says at its worst is beside the last lines of the log.
    """

    def __init__(self, directory: Path, limit: int = FILE_BYTES) -> None:
        """Raises UsageError where the directory cannot be made."""
        make_private_dir(directory)
        path = log_path(directory, SUPERVISOR_LOG)
        self._lock = threading.Lock()
        self._following = [fd for fd in (1, 2) if _is_file(fd, path)]
        self._log = LineLog(path, limit, self._write, on_written=self._wake)
        self.on_written: Callable[[], None] | None = None
        """Called in the thread that has written a line."""
        self.is_stderr = 2 in self._following

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def add(self, line: str) -> None:
        """Append one line."""
        with self._lock:
            self._log.feed(line.encode(errors="replace") + b"\n")

    def close(self) -> None:
        """Close the file; what follows it stays open."""
        with self._lock:
            self._log.close()

    def _wake(self) -> None:
        if self.on_written is not None:
            self.on_written()

    def _write(self, fd: int, data: bytes) -> int:
        for following in self._following:
            if not os.path.samestat(os.fstat(fd), os.fstat(following)):
                os.dup2(fd, following)
        return os.write(fd, data)


def _is_file(fd: int, path: Path) -> bool:
    with suppress(OSError):  # closed, or there is no such file
        return os.path.samestat(os.fstat(fd), path.stat())
    return False
