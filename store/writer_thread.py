"""The thread that writes, one batch after the other, the file's maintenance in between; and one that watches it."""

import logging
import math
import os
import select
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from store.backlog import WriteBatch
from store.database import Database
from store.maintenance import Maintenance
from store.records import ROW_ERRORS, FileLost

_MAINTENANCE_DELAY = 0.5
"""Seconds after a write until the file is looked at, so that a busy thread does it once for many writes."""
_logger = logging.getLogger("pool.store")
ItemT = TypeVar("ItemT")


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


_LONGEST_POLL = 2**31 - 1
"""Milliseconds that poll() takes."""


class Handover(Generic[ItemT]):
    """From one thread to another, in order, by way of a pipe.

    A lock or a queue wakes the other thread while this one still holds the interpreter: it wakes up to wait for that.
    Writing to a pipe releases it first: 12 us of CPU there and back, where a queue takes 45.
    """

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque()
        self._read_end, self._write_end = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: ItemT) -> None:
        """Hand over; waits only where thousands are not taken."""
        self._items.append(item)
        os.write(self._write_end, b"\0")

    def get(self, timeout: float | None) -> ItemT | None:
        """Take the next one, waited for at most ``timeout`` seconds; None = there is none yet."""
        if timeout == 0.0 and not self._items:
            return None
        if not self._poll.poll(None if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_POLL)):
            return None
        os.read(self._read_end, 1)
        return self._items.popleft()

    def close(self) -> None:
        """Once no thread uses it."""
        os.close(self._read_end)
        os.close(self._write_end)


class WriterThread:
    """Owns the database from ``start`` on. The public methods belong to one other thread at a time.

    It does not keep the process alive, should the disk never answer.
    """

    def __init__(self, database: Database, maintenance: Maintenance, *, notify: Callable[[], None]) -> None:
        """``notify`` is called by the thread for each result after ``request_notice``, and at its end."""
        self._database = database
        self._maintenance = maintenance
        self._notify = notify
        self._jobs: Handover[WriteBatch | int] = Handover()
        self._results: Handover[BatchResult] = Handover()
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
        return self._results.get(max(0.0, timeout))

    def request_notice(self, *, wanted: bool) -> None:
        """Whether to call ``notify`` for results from now on; one that came before has to be looked for once more."""
        self._wants_notice = wanted

    def close(self, unwritten: int, timeout: float) -> bool:
        """Close the file, which lacks that many rows, and wait for it; False = it has not come to that in time."""
        self._jobs.put(unwritten)
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        self._jobs.close()
        self._results.close()
        return True

    def _run(self) -> None:
        while not isinstance(job := self._next_job(), int):
            if job is None:
                self._run_maintenance()
            else:
                self._write(job)
        self._finish(job)

    def _next_job(self) -> WriteBatch | int | None:
        """Wait for something to do; None = maintenance."""
        return self._jobs.get(None if self._has_failed else max(0.0, self._maintenance_at - time.monotonic()))

    def _write(self, batch: WriteBatch) -> None:
        refused: list[str] = []
        error: Exception | None = None
        is_due, added = False, len(batch.events)
        try:
            if self._has_failed:  # also where maintenance has found the file gone since the batch was handed over
                self._database.reopen()
            refused = self._commit(batch)
            is_due = self._maintenance.is_due()
        except Exception as exc:  # noqa: BLE001  # whatever it is: nothing may be lost, and no flush may wait for ever
            error = exc
        self._has_failed = error is not None
        self._report(BatchResult(batch.changes - len(refused), refused, error))
        # Nothing is left to do here for most batches: from the report on the interpreter is the event loop's.
        if is_due:
            self._try_maintenance(lambda: self._maintenance.catch_up(added, is_awaited=self._is_awaited))
        if error is None:
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
        return len(self._jobs) > 0

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
