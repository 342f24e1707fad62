"""What is to be written on its way to the disk: when a batch goes to the writer thread, and what its result means."""

import logging
import math
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import trio

from errors import PoolClosed
from store.backlog import WriteBacklog, WriteBatch
from store.disk_health import DiskHealth
from store.records import FileLost, StoreStatistics
from store.settings import StoreSettings
from store.writer_thread import BatchResult, StallWatch, WriterThread

_PATIENCE = 0.02
"""Seconds for which the event loop may wait for a commit; most take 0.1 ms."""
_SMALL_BATCH_BYTES = 64 * 1024
_SLOW_DISK_SECONDS = 1.0
"""After a commit that took longer than that, the event loop waits for none so long."""
_QUICK_COMMIT = 0.002
_PAUSE_FACTOR = 10
"""After one that took longer than a quick one, the event loop waits for none for ten times as long."""
_MAX_REPORTED_ERRORS = 5
OnTrouble = Callable[[str, dict[str, Any]], None]
"""Called with what a person should know: a kind, and facts that can be written as JSON."""
_logger = logging.getLogger("pool.store")


class Writer:
    """Belongs to the event loop.

    A small commit on a disk that answers at once is waited for: the writer thread then has the interpreter to itself,
    where otherwise each of its statements would fight the event loop for it. What takes longer goes on beside the
    event loop: ``collect`` has to be called whenever the thread notifies.
    """

    def __init__(
        self,
        thread: WriterThread,
        settings: StoreSettings,
        *,
        on_change: Callable[[], None],
        on_trouble: OnTrouble,
        on_stall: Callable[[WriteBatch], None],
    ) -> None:
        """``on_stall`` is called by a thread of its own and has to have ``stalled`` called on the event loop."""
        self._thread = thread
        self._settings = settings
        self._on_change = on_change
        self._on_trouble = on_trouble
        self.backlog = WriteBacklog(settings.backlog, on_open=self._announce_batch)
        self.disk = DiskHealth(settings.retry)
        self.is_closing = False
        self.wanted = trio.lowlevel.ParkingLot()
        """Where one task waits to call ``commit``."""
        self._slow_until = -math.inf
        self._watch = StallWatch(on_stall)
        self._rows_written = 0
        self._has_lost_file = False

    def refuse_more(self) -> None:
        """The store is being closed: what is put from now on raises PoolClosed."""
        self.is_closing = True
        self.backlog.close_batch()
        self.wanted.unpark()

    def _announce_batch(self) -> None:
        if self.is_closing:
            raise PoolClosed("the store is closed and takes nothing more")
        if not self._is_writing:
            self.wanted.unpark()

    def commit(self) -> None:
        """Have what waits written, unless the disk is busy or not to be tried yet."""
        while not self._is_writing and not self._retry_delay() and self._begin():
            result = self._await_briefly()
            if result is not None:
                self._finish(result)
            if self.backlog.in_flight is not None:  # or the result was one of maintenance
                self._go_on_beside()

    def collect(self) -> None:
        """See what the thread has done meanwhile, and go on."""
        self._finish_available()
        self.commit()

    @property
    def _is_writing(self) -> bool:
        return self.backlog.in_flight is not None

    @property
    def commit_delay(self) -> float:
        """Seconds until ``commit`` is to be called though nothing is put meanwhile."""
        return math.inf if self._is_writing or self.backlog.is_empty else self._retry_delay()

    def begin_last(self) -> bool:
        """Once ``is_closing``: have what waits written; False = nothing more is to be written."""
        return self._is_writing or self._begin()

    def finish_last(self, result: BatchResult) -> bool:
        """Take a result of that; False = the disk refuses, and no further attempt is made."""
        self._finish(result)
        return result.error is None or result.is_maintenance

    def stalled(self, batch: WriteBatch) -> None:
        """``batch`` has taken too long; the disk is not relied upon until it has come through."""
        if self.is_closing or self.backlog.in_flight is not batch:
            return
        is_news = self.disk.stalled(f"no answer for {self._settings.stall:g} s", time.monotonic())
        self.backlog.enable_limit()
        if is_news:
            self._report_degraded()

    def close(self) -> None:
        """End the watch."""
        self._watch.close()

    @property
    def purged_through(self) -> int:
        """Highest seq of events that cannot be read any more."""
        return max(self._thread.purged_through, self.backlog.purged_through)

    def statistics(self) -> StoreStatistics:
        """Figures of this moment; counts what waits."""
        return StoreStatistics(
            rows_waiting=self.backlog.changes,
            bytes_waiting=self.backlog.cost,
            rows_written=self._rows_written,
            degraded=self.disk.is_degraded,
            lost=self.backlog.lost,
            last_error=self.disk.last_error,
        )

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        batch = self.backlog.begin_batch()
        if batch is None:
            return False
        self._thread.write(batch)
        return True

    def _await_briefly(self) -> BatchResult | None:
        """The result of a batch that is small, on a disk that was not slow a moment ago."""
        batch = self.backlog.in_flight
        is_small = batch is not None and batch.cost <= _SMALL_BATCH_BYTES
        if not is_small or self.disk.is_degraded or self._settings.synchronous == "full":
            return None
        begin = time.monotonic()
        if begin < self._slow_until:
            return None
        result = self._thread.result(_PATIENCE)
        took = time.monotonic() - begin
        if took > _QUICK_COMMIT:
            self._slow_until = begin + took + (_SLOW_DISK_SECONDS if result is None else _PAUSE_FACTOR * took)
        return result

    def _go_on_beside(self) -> None:
        """Have the thread notify us, and watch how long it takes."""
        self._thread.request_notice(wanted=True)
        if self.backlog.in_flight is not None:
            self._watch.begin(self.backlog.in_flight, self._settings.stall)
        self._finish_available()  # a result may have come before the notice was requested

    def _finish_available(self) -> None:
        while (result := self._thread.result(0)) is not None:
            self._finish(result)

    def _finish(self, result: BatchResult) -> None:
        if not result.is_maintenance:
            self._thread.request_notice(wanted=False)
            self._watch.end()
        if result.error is not None:
            self._failed(result, result.error)
        else:
            self._succeeded(result)

    def _failed(self, result: BatchResult, error: Exception) -> None:
        if not isinstance(error, sqlite3.Error):
            _logger.error("internal error in the store writer", exc_info=error)
        if not result.is_maintenance:
            self.backlog.requeue_batch()
        is_news = self.disk.failed(f"{type(error).__name__}: {error}", time.monotonic())
        self.backlog.enable_limit()
        had_lost, self._has_lost_file = self._has_lost_file, isinstance(error, FileLost)
        if is_news or (self._has_lost_file and not had_lost):  # of a lost file also who knows of a disk that refuses
            self._report_degraded()
        self.wanted.unpark()  # to wait for the next attempt

    def _succeeded(self, result: BatchResult) -> None:
        since, refused = self.disk.degraded_since, result.refused
        self._has_lost_file = False
        self._rows_written += result.rows
        self.backlog.finish_batch(refused=len(refused))
        has_recovered = self.disk.succeeded(self.backlog.written, self.backlog.position)
        if not self.disk.is_degraded:
            self.backlog.disable_limit()
        self._on_change()
        if refused:
            self._on_trouble("store_rows_refused", {"rows": len(refused), "errors": refused[:_MAX_REPORTED_ERRORS]})
        if has_recovered and since is not None:
            seconds = round(time.monotonic() - since, 3)
            self._on_trouble("store_recovered", {"seconds": seconds, "lost": self.backlog.lost})

    def _retry_delay(self) -> float:
        return self.disk.retry_delay(time.monotonic()) if self.disk.failures else 0.0

    def _report_degraded(self) -> None:
        facts = self.statistics()
        details = {"path": str(self._thread.path), "error": facts.last_error, "rows_waiting": facts.rows_waiting}
        self._on_change()
        self._on_trouble("store_degraded", details)
