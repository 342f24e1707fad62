"""The thread that writes, one batch after the other, the file's maintenance in between; and one that watches it."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from store.backlog import WriteBatch
from store.database import Database
from store.maintenance import Maintenance
from store.records import ROW_ERRORS, FileLost

_MAINTENANCE_DELAY = 0.5
"""Seconds after a write until the file is looked at, so that a busy thread does it once for many writes."""
_logger = logging.getLogger("pool.store")


class BatchResult(NamedTuple):
    """What became of a batch, or of maintenance, which reports only what ends it."""

    rows: int = 0
    """Written."""
    refused: Sequence[str] = ()
    """What is wrong with each row that the database cannot hold."""
    error: Exception | None = None
    """Nothing was written."""
    is_maintenance: bool = False


class StallWatch:
    """A thread that notices a batch that takes too long, by real time whatever the event loop's clock says."""

    def __init__(self, on_stall: Callable[[WriteBatch], None]) -> None:
        """``on_stall`` is called by the thread."""
        self._on_stall = on_stall
        self._changed = threading.Condition()
        self._watched: tuple[WriteBatch, float] | None = None
        self._is_asleep = False
        self._is_closing = False
        threading.Thread(target=self._run, name="store-watch", daemon=True).start()

    def begin(self, batch: WriteBatch, limit: float) -> None:
        """Watch this batch, and no other, from now on for ``limit`` seconds."""
        with self._changed:
            self._watched = (batch, time.monotonic() + limit)
            if self._is_asleep:
                self._changed.notify()

    def end(self) -> None:
        """Watch none. The thread is not woken for that."""
        self._watched = None

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closing:
                watched = self._watched
                left = None if watched is None else watched[1] - time.monotonic()
                if watched is not None and left is not None and left <= 0:
                    self._watched = None
                    self._on_stall(watched[0])
                else:
                    self._is_asleep = watched is None
                    self._changed.wait(left)
                    self._is_asleep = False


class WriterThread:
    """Owns the database from ``start`` on. The public methods belong to one other thread at a time.

    It does not keep the process alive, should the disk never answer.
    """

    def __init__(self, database: Database, maintenance: Maintenance, *, notify: Callable[[], None]) -> None:
        """``notify`` is called by the thread for each result after ``request_notice``, and at its end."""
        self._database = database
        self._maintenance = maintenance
        self._notify = notify
        self._jobs: SimpleQueue[WriteBatch | int] = SimpleQueue()
        self._results: SimpleQueue[BatchResult] = SimpleQueue()
        self._wants_notice = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        # The thread's own.
        self._maintenance_at = 0.0
        self._has_failed = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    @property
    def purged_through(self) -> int:
        """Highest seq of events that were deleted."""
        return self._database.purged_through

    def write(self, batch: WriteBatch) -> None:
        """Have a batch written. One at a time."""
        self._jobs.put(batch)

    def result(self, timeout: float) -> BatchResult | None:
        """The next result, waited for at most ``timeout`` seconds; None = there is none yet."""
        try:
            return self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait()
        except Empty:
            return None

    def request_notice(self, *, wanted: bool) -> None:
        """Whether to call ``notify`` for results from now on; one that came before has to be looked for once more."""
        self._wants_notice = wanted

    def close(self, unwritten: int, timeout: float) -> bool:
        """Close the file, which lacks that many rows, and wait for it; False = it has not come to that in time."""
        self._jobs.put(unwritten)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not isinstance(job := self._next_job(), int):
            if job is None:
                self._run_maintenance()
            else:
                self._write(job)
        self._finish(job)

    def _next_job(self) -> WriteBatch | int | None:
        """Wait for something to do; None = maintenance."""
        wait = None if self._has_failed else max(0.0, self._maintenance_at - time.monotonic())
        try:
            return self._jobs.get(wait != 0, wait)
        except Empty:
            return None

    def _write(self, batch: WriteBatch) -> None:
        refused: list[str] = []
        error: Exception | None = None
        try:
            if self._has_failed:  # also where maintenance has found the file gone since the batch was handed over
                self._database.reopen()
            refused = self._commit(batch)
        except Exception as exc:  # noqa: BLE001  # whatever it is: nothing may be lost, and no flush may wait for ever
            error = exc
        self._has_failed = error is not None
        added = len(batch.events)
        self._report(BatchResult(batch.changes - len(refused), refused, error))
        if error is None:
            self._try_maintenance(lambda: self._maintenance.catch_up(added, is_awaited=self._is_awaited))
            self._maintenance_at = min(self._maintenance_at, time.monotonic() + _MAINTENANCE_DELAY)

    def _commit(self, batch: WriteBatch) -> list[str]:
        try:
            self._database.write(batch)
        except ROW_ERRORS:
            return self._database.write_valid_rows(batch)
        return []

    def _report(self, result: BatchResult) -> None:
        self._results.put(result)
        if self._wants_notice:
            self._notify()

    def _is_awaited(self) -> bool:
        return not self._jobs.empty()

    def _run_maintenance(self) -> None:
        has_more = self._try_maintenance(self._maintenance.step)
        if not has_more:
            self._maintenance_at = time.monotonic() + self._maintenance.interval

    def _try_maintenance(self, step: Callable[[], bool | None]) -> bool:
        """Nothing is lost when maintenance fails, unless it finds the file gone; the next write tries it again."""
        try:
            return bool(step())
        except FileLost as exc:
            self._has_failed = True
            self._results.put(BatchResult(error=exc, is_maintenance=True))
            self._notify()
        except (sqlite3.Error, OSError) as exc:
            _logger.warning("store maintenance failed: %s", exc)
        except Exception:  # a defect here must not end the thread that every flush waits for
            _logger.exception("internal error in store maintenance")
        return False

    def _finish(self, unwritten: int) -> None:
        try:
            if unwritten:
                _logger.error("%d rows could not be written to %s and are lost", unwritten, self._database.path)
                self._database.close()
            else:
                self._database.close_cleanly()
        except sqlite3.Error as exc:
            _logger.warning("%s was not closed cleanly: %s", self._database.path, exc)
