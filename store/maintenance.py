"""File maintenance in small steps between writes: presence check, retention, write-ahead log, unused pages."""

from collections.abc import Callable

from store.database import Database
from store.settings import RetentionClock, StoreSettings

_ROWS_PER_STEP = 200
"""Deleted in one step: a few milliseconds, since each row's entry in the index lies on another page."""
_WAL_BYTES = 8 * 1024 * 1024
"""Moving so much takes some 10 ms, once for some 500 single commits."""
_PAGES_PER_STEP = 64
_KEPT_FREE_PAGES = 4096
"""16 MiB of unused pages, and a quarter of the file, are kept for the next rows before any are given back."""
_MAX_SEQ = 2**63 - 1
_AGE_CHECKS = 1000
"""Number of checks of the events' age in the time they are kept."""
_AGE_CHECK_SECONDS = (1.0, 3600.0)
_FILE_CHECK_SECONDS = 10.0
"""Seconds in which to notice that the file was removed; what is promised meanwhile is lost with all the rest."""


class Maintenance:
    """Decides what is due; the writer says when there is time."""

    def __init__(
        self, database: Database, settings: StoreSettings, *, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        """Reads the database: to be made by the thread that uses it, or before that thread begins."""
        self._database = database
        self._settings = settings
        self._clock = RetentionClock(clock, monotonic, database.latest_time())
        self._monotonic = monotonic
        self._next_age_check = self._next_file_check = monotonic()
        self._expired = 0

    @property
    def interval(self) -> float:
        """Seconds that may pass until ``step`` has to look again, when it has found nothing to do."""
        return min(_FILE_CHECK_SECONDS, self._age_check_interval or _FILE_CHECK_SECONDS)

    @property
    def _age_check_interval(self) -> float | None:
        age = self._settings.events_age
        return min(max(age / _AGE_CHECKS, _AGE_CHECK_SECONDS[0]), _AGE_CHECK_SECONDS[1]) if age else None

    def step(self) -> bool:
        """Do the most urgent thing that is due, in some milliseconds; False = there is nothing to do.

        Raises FileLost, as ``catch_up`` does, once that is noticed.
        """
        self._check_file()
        has_written = self.prune() or self._vacuum()
        if has_written:
            self.checkpoint()
        return has_written

    def is_due(self) -> bool:
        """Whether ``catch_up`` has anything to do; in some microseconds."""
        now = self._monotonic()
        return (
            now >= self._next_file_check
            or self._expired > 0
            or (self._age_check_interval is not None and now >= self._next_age_check)
            or self._database.event_count > self._settings.events
            or self._database.wal_bytes() >= _WAL_BYTES
        )

    def catch_up(self, added: int, *, is_awaited: Callable[[], bool]) -> None:
        """After a write of ``added`` events: delete up to twice as many old ones, unless another write is awaited.

        Far over its limit the table shrinks in any case, or a steady flood would let it grow without end.
        """
        self._check_file()
        far = self._settings.events + self._settings.events // 10
        owed = 2 * added
        while owed > 0 and (self._database.event_count > far or not is_awaited()) and self.prune():
            owed -= _ROWS_PER_STEP
        self.checkpoint()

    def checkpoint(self) -> None:
        """Empty the write-ahead log once it is long; to be called after a write, which is what makes it longer."""
        if self._database.wal_bytes() >= _WAL_BYTES:
            self._database.checkpoint()

    def prune(self) -> bool:
        """Delete some of the events that are too many or too old; False = there were none."""
        excess = self._database.event_count - self._settings.events
        if excess > 0:
            return self._database.delete_events(_MAX_SEQ, min(excess, _ROWS_PER_STEP)) > 0
        self._find_expired()
        if not self._expired:
            return False
        deleted = self._database.delete_events(self._expired, _ROWS_PER_STEP)
        if deleted < _ROWS_PER_STEP:
            self._expired = 0
        return deleted > 0

    def _check_file(self) -> None:
        now = self._monotonic()
        if now >= self._next_file_check:
            self._next_file_check = now + _FILE_CHECK_SECONDS
            self._database.check_file()

    def _find_expired(self) -> None:
        now = self._monotonic()
        rest = self._age_check_interval
        if rest is None or self._expired or now < self._next_age_check:
            return
        self._next_age_check = now + rest
        self._expired = self._database.last_seq_before(self._clock.now() - self._settings.events_age)

    def _vacuum(self) -> bool:
        unused, pages = self._database.free_pages()
        if unused <= max(_KEPT_FREE_PAGES, pages // 4):
            return False
        self._database.vacuum(_PAGES_PER_STEP)
        return True
