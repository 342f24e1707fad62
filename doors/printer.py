"""Lines for the standard output of ``pool run``, written by a thread: who reads there must not hold the supervisor."""

import errno
import os
import queue
import threading
from typing import Self, TextIO

from doors.last_words import wait_for_last_words

__all__ = ["Printer"]

_QUEUED = 100


class Printer:
    """A context manager; leaving it gives the reader of the last lines a second.

    One that is never told anything starts no thread. Characters that the output's encoding does not have are written as
    standard error has them: by their numbers.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._encoding = out.encoding or "utf-8"
        self._queue: queue.Queue[str | None] = queue.Queue(_QUEUED)
        self._thread: threading.Thread | None = None
        self._is_writing = False
        self._error: OSError | None = None
        self.ended = threading.Event()
        """It writes no more, because that failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._thread is not None:  # a daemon: where nobody reads it ends with the process
            wait_for_last_words(self._thread, self._queue, lambda: self._is_writing)

    def write(self, lines: str) -> None:
        """Have lines, without the last line end, written; never blocks. Raises OSError where nobody takes them."""
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="printer", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _write_all(self) -> None:
        try:
            while (lines := self._queue.get()) is not None:
                writable = lines.encode(self._encoding, "backslashreplace").decode(self._encoding)
                self._is_writing = True
                self._out.write(f"{writable}\n")
                self._out.flush()
                self._is_writing = False
        except (OSError, ValueError) as exc:  # ValueError: closed
            self._error = exc if isinstance(exc, OSError) else OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            self.ended.set()
