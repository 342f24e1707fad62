"""Lines for the standard output of ``pool run``, written by a thread: who reads there must not hold the supervisor."""

import errno
import os
import queue
import threading
from typing import Self, TextIO

from doors.last_words import WritingThread

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
        self._thread: WritingThread | None = None
        self._error: OSError | None = None
        self.ended = threading.Event()
        """It writes no more, because that failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._thread is not None:
            self._thread.end()

    def write(self, lines: str) -> None:
        """Have lines, without the last line end, written; never blocks. Raises OSError where nobody takes them."""
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._thread = WritingThread(self._queue, self._write_all, "printer")
            self._thread.start()
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _write_all(self, thread: WritingThread) -> None:
        try:
            while (lines := self._queue.get()) is not None:
                writable = lines.encode(self._encoding, "backslashreplace").decode(self._encoding)
                thread.is_writing = True
                self._out.write(f"{writable}\n")
                self._out.flush()
                thread.is_writing = False
        except (OSError, ValueError) as exc:  # ValueError: closed
            self._error = exc if isinstance(exc, OSError) else OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            self.ended.set()
