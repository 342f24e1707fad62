"""The threads that write what others say, and their end: a reader gets a second for the last words, and no more."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["WritingThread", "ends_without_a_reader"]

_LOOK_SECONDS = 0.05
_PATIENCE = 20
"""So many looks that find the thread inside a write: together a second. One that has only had no turn is waited for."""


class WritingThread(threading.Thread):
    """Runs ``write_all``, which is given this thread and writes what ``lines`` has, up to a None; a daemon."""

    def __init__(self, lines: queue.Queue[Any], write_all: Callable[["WritingThread"], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._lines = lines
        self._write_all = write_all
        self.is_writing = False
        """Set around what a reader can hold up."""
        self.is_given_up = False

    def run(self) -> None:
        """Write until told to end."""
        self._write_all(self)

    def end(self) -> None:
        """Put None behind the last of the lines and wait until the thread has ended; give up where nobody reads."""
        patience = _PATIENCE
        is_told = False
        while self.is_alive() and patience:
            if not is_told:
                with suppress(queue.Full):
                    self._lines.put_nowait(None)
                    is_told = True
            self.join(_LOOK_SECONDS)
            patience -= self.is_writing
        self.is_given_up = self.is_alive()


@contextmanager
def ends_without_a_reader() -> Iterator[None]:
    """Where at the end a thread is still inside a write that nobody reads, end the process with 0 (1: raised).

    Python would at its own end wait for what that thread holds, for as long as nobody reads.
    """
    code = 1
    try:
        yield
        code = 0
    finally:
        if any(isinstance(thread, WritingThread) and thread.is_given_up for thread in threading.enumerate()):
            os._exit(code)
