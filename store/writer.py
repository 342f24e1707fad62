"""The writer thread, the health of the disk that it writes to, and a second thread that notices a stalled write."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from errors import PoolClosed
from store.backlog import WriteBacklog, WriteBatch
from store.database import Database
from store.maintenance import Maintenance
from store.records import ROW_ERRORS, EventRow, FileLost, StoreStatistics
from store.settings import StoreSettings

_FIRST_PAUSE = 0.1
_MOST_DOUBLINGS = 16


class DiskHealth:
    """Degraded from the first write that fails, or takes too long, until all that waited by then is written."""

    def __init__(self, longest_pause: float) -> None:
        self.degraded_since: float | None = None
        self.last_error: str | None = None
        self.failures = 0
        """Attempts in a row that have failed."""
        self._longest_pause = longest_pause
        self._next_attempt = 0.0
        self._recovery_position: int | None = None

    @property
    def is_degraded(self) -> bool:
        """Whether to rely on memory only."""
        return self.degraded_since is not None

    def failed(self, reason: str, now: float) -> bool:
        """A write was refused; True = this is news."""
        pause = min(_FIRST_PAUSE * 2 ** min(self.failures, _MOST_DOUBLINGS), self._longest_pause)
        self.failures += 1
        self._next_attempt = now + pause
        return self.stalled(reason, now)

    def stalled(self, reason: str, now: float) -> bool:
        """A write goes on for too long and may still succeed; True = this is news."""
        self.last_error = reason
        self._recovery_position = None
        if self.is_degraded:
            return False
        self.degraded_since = now
        return True

    def succeeded(self, written: int, position: int) -> bool:
        """A write came through, of changes up to ``written`` while they reach up to ``position``; True = recovered."""
        self.failures = 0
        self._next_attempt = 0.0
        if not self.is_degraded:
            return False
        if self._recovery_position is None:
            self._recovery_position = position
        if written < self._recovery_position:
            return False
        self.degraded_since = self._recovery_position = None
        return True

    def retry_delay(self, now: float) -> float:
        """Seconds to wait before the next attempt; 0 = none."""
        return max(0.0, self._next_attempt - now)


OnTrouble = Callable[[str, dict[str, Any]], None]
"""Told what a person should know: a kind, and facts that can be written as JSON."""

_MAX_REPORTED_ERRORS = 5
_logger = logging.getLogger("pool.store")


class Writer:
    """Owns the database from ``start`` on. The public methods belong to one other thread, the event loop's.

    ``on_change`` and ``on_trouble`` are called by the writer's threads, never with the lock held.
    """

    def __init__(
        self,
        database: Database,
        settings: StoreSettings,
        upkeep: Maintenance,
        *,
        on_change: Callable[[], None],
        on_trouble: OnTrouble,
    ) -> None:
        self._database = database
        self._settings = settings
        self._maintenance = upkeep
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._threads = [threading.Thread(target=run, name="store", daemon=True) for run in (self._run, self._watch)]
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._watch_wakeup = threading.Condition(lock)
        self.has_ended = False
        """Whether the thread is done with the database."""
        # Everything from here to the thread's own is changed with the lock held; single numbers are read without it.
        self.backlog = WriteBacklog(settings.backlog)
        self.disk = DiskHealth(settings.retry)
        self._busy_since: float | None = None
        self._is_watched = False
        self._is_closing = False
        self._rows_written = 0
        # The thread's own.
        self._maintenance_at = 0.0
        self._has_given_up = False
        self._has_lost_file = False

    def start(self) -> None:
        """Begin. The threads do not keep the process alive, should the disk never answer."""
        for thread in self._threads:
            thread.start()

    def put(self, change: Callable[[WriteBacklog], None]) -> None:
        """Add to what waits. Raises PoolClosed after ``close``."""
        with self._work:
            if self._is_closing:
                raise PoolClosed("the store is closed and takes nothing more")
            was_empty = self.backlog.is_empty
            change(self.backlog)
            if self.backlog.is_empty:
                return  # a change of nothing: the disk owes no answer for it
            self._set_busy_since(self._busy_since or time.monotonic())
            if was_empty or not self.disk.is_degraded:
                self._work.notify()

    def close(self) -> None:
        """Write what waits, once more if the disk refuses, then end."""
        with self._work:
            self._is_closing = True
            self._work.notify()

    def join(self, timeout: float) -> bool:
        """After ``close``: wait for the end, at most ``timeout`` seconds; False = it has not come."""
        self._threads[0].join(timeout)
        return self.has_ended

    @property
    def purged_through(self) -> int:
        """Highest seq of events that cannot be read any more."""
        return max(self._database.purged_through, self.backlog.purged_through)

    def unwritten_events(self) -> list[EventRow]:
        """The events in memory only, as they came."""
        with self._work:
            return self.backlog.events()

    def unwritten_documents(self, kind: str) -> dict[str, bytes | None]:
        """What the documents of a kind in the file are not yet; None = removed."""
        with self._work:
            return self.backlog.documents(kind)

    def statistics(self) -> StoreStatistics:
        """Figures of this moment; counts what waits."""
        with self._work:
            return StoreStatistics(
                rows_waiting=self.backlog.changes,
                bytes_waiting=self.backlog.cost,
                rows_written=self._rows_written,
                degraded=self.disk.is_degraded,
                lost=self.backlog.lost,
                last_error=self.disk.last_error,
            )

    def _run(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                if isinstance(work, WriteBatch):
                    self._write(work)
                else:
                    self._run_maintenance()
            self._finish()
        finally:
            with self._watch_wakeup:
                self.has_ended = True
                self._watch_wakeup.notify()
            self._on_change()

    def _next_work(self) -> WriteBatch | Literal["upkeep"] | None:
        """Wait for something to do; None = the end."""
        with self._work:
            while not (self._is_closing and (self.backlog.is_empty or self._has_given_up)):
                now = time.monotonic()
                pause = 0.0 if self._is_closing else self.disk.retry_delay(now)
                if not pause and (batch := self.backlog.begin_batch()) is not None:
                    return batch
                if not self.disk.is_degraded:
                    pause = max(0.0, self._maintenance_at - now)
                    if not pause:
                        return "upkeep"
                self._work.wait(pause or None)
            return None

    def _write(self, batch: WriteBatch) -> None:
        try:
            if self.disk.failures:
                self._database.reopen()
            refused = self._commit(batch)
        except Exception as exc:  # noqa: BLE001  # whatever it is: nothing may be lost, and no flush may wait for ever
            self._failed(exc)
        else:
            self._succeeded(batch, refused)
            self._try_maintenance(lambda: self._maintenance.catch_up(len(batch.events), is_awaited=self._is_awaited))
            self._maintenance_at = time.monotonic() if not self.disk.is_degraded else self._maintenance_at

    def _commit(self, batch: WriteBatch) -> list[str]:
        try:
            self._database.write(batch)
        except ROW_ERRORS:
            return self._database.write_valid_rows(batch)
        return []

    def _failed(self, exc: Exception) -> None:
        if not isinstance(exc, sqlite3.Error):
            _logger.error("internal error in the store writer", exc_info=exc)
        with self._work:
            self.backlog.requeue_batch()
        self._degrade(exc)

    def _degrade(self, exc: Exception) -> None:
        with self._work:
            is_news = self.disk.failed(f"{type(exc).__name__}: {exc}", time.monotonic())
            self._has_given_up = self._is_closing
            self.backlog.enable_limit()
        had_lost, self._has_lost_file = self._has_lost_file, isinstance(exc, FileLost)
        if is_news or (self._has_lost_file and not had_lost):  # of a lost file also who knows of a disk that refuses
            self._report_degraded()

    def _succeeded(self, batch: WriteBatch, refused: list[str]) -> None:
        now = time.monotonic()
        self._has_lost_file = False
        with self._work:
            since = self.disk.degraded_since
            self._rows_written += batch.changes - len(refused)
            self.backlog.finish_batch(refused=len(refused))
            has_recovered = self.disk.succeeded(self.backlog.written, self.backlog.position)
            if not self.disk.is_degraded:
                self.backlog.disable_limit()
            self._set_busy_since(None if self.backlog.is_empty else now)
            lost = self.backlog.lost
        self._on_change()
        if refused:
            self._on_trouble("store_rows_refused", {"rows": len(refused), "errors": refused[:_MAX_REPORTED_ERRORS]})
        if has_recovered and since is not None:
            self._on_trouble("store_recovered", {"seconds": round(now - since, 3), "lost": lost})

    def _set_busy_since(self, busy_since: float | None) -> None:
        """Since when the disk owes an answer. The watch is woken only when it does not know of any yet."""
        self._busy_since = busy_since
        if busy_since is not None and not self._is_watched and not self.disk.is_degraded:
            self._watch_wakeup.notify()

    def _report_degraded(self) -> None:
        facts = self.statistics()
        details = {"path": str(self._database.path), "error": facts.last_error, "rows_waiting": facts.rows_waiting}
        self._on_change()
        self._on_trouble("store_degraded", details)

    def _is_awaited(self) -> bool:
        return not self.backlog.is_empty

    def _run_maintenance(self) -> None:
        has_more = self._try_maintenance(self._maintenance.step)
        if not has_more:
            self._maintenance_at = time.monotonic() + self._maintenance.interval

    def _try_maintenance(self, step: Callable[[], bool | None]) -> bool:
        """Nothing is lost when upkeep fails, unless it finds the file gone; it is tried again after the next write."""
        try:
            return bool(step())
        except FileLost as exc:
            self._degrade(exc)
        except (sqlite3.Error, OSError) as exc:
            _logger.warning("store maintenance failed: %s", exc)
        except Exception:  # a defect here must not end the thread that every flush waits for
            _logger.exception("internal error in store maintenance")
        return False

    def _finish(self) -> None:
        with self._work:
            unwritten = self.backlog.changes
        try:
            if unwritten:
                _logger.error("%d rows could not be written to %s and are lost", unwritten, self._database.path)
                self._database.close()
            else:
                self._database.close_cleanly()
        except sqlite3.Error as exc:
            _logger.warning("%s was not closed cleanly: %s", self._database.path, exc)

    def _watch(self) -> None:
        while self._wait_for_stall():
            self._report_degraded()

    def _wait_for_stall(self) -> bool:
        """Wait until a write takes too long, and stop relying on the disk; False = the end."""
        with self._watch_wakeup:
            while not self.has_ended:
                since = None if self.disk.is_degraded else self._busy_since
                self._is_watched = since is not None
                now = time.monotonic()
                left = None if since is None else since + self._settings.stall - now
                if left is not None and left <= 0:
                    self.disk.stalled(f"no answer for {self._settings.stall:g} s", now)
                    self.backlog.enable_limit()
                    return True
                self._watch_wakeup.wait(left)
            return False
