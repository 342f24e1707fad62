"""Upkeep of the file in small steps between the writes: is it still there, retention, its log, giving space back."""

from collections.abc import Callable

from store.database import Database
from store.settings import CautiousClock, StoreSettings

_ROWS = 200
"""Deleted in one step: a few milliseconds, since each row's entry in the index lies on another page."""
_LOG_BYTES = 8 * 1024 * 1024
"""Moving so much takes some 10 ms, once for some 500 single commits."""
_PAGES = 64
_UNUSED_PAGES = 4096
"""16 MiB of unused pages, and a quarter of the file, are kept for the next rows before any are given back."""
_ALL = 2**63 - 1
_AGE_CHECKS = 1000
"""The age of events is looked at so many times in the time they are kept."""
_REST = (1.0, 3600.0)
_PLACE_CHECK = 10.0
"""Seconds in which to notice that the file was removed; what is promised meanwhile is lost with all the rest."""


class Upkeep:
    """Decides what is due; the writer says when there is time."""

    def __init__(
        self, database: Database, settings: StoreSettings, *, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        """Reads the database: to be made by the thread that uses it, or before that thread begins."""
        self._database = database
        self._settings = settings
        self._clock = CautiousClock(clock, monotonic, database.latest_time())
        self._monotonic = monotonic
        self._next_age_check = self._next_place_check = monotonic()
        self._expired = 0

    @property
    def rest(self) -> float:
        """Seconds that may pass until ``step`` has to look again, when it has found nothing to do."""
        return min(_PLACE_CHECK, self._age_rest or _PLACE_CHECK)

    @property
    def _age_rest(self) -> float | None:
        age = self._settings.events_age
        return min(max(age / _AGE_CHECKS, _REST[0]), _REST[1]) if age else None

    def step(self) -> bool:
        """Do the most urgent thing that is due, in some milliseconds; False = there is nothing to do.

        Raises FileLost, as ``catch_up`` does, once that is noticed.
        """
        self._check_place()
        has_written = self.prune() or self._shrink()
        if has_written:
            self.move_log()
        return has_written

    def catch_up(self, added: int, *, is_awaited: Callable[[], bool]) -> None:
        """After a write with so many new events: delete up to twice as many old ones, while nobody waits for the next.

        Far over its limit the table shrinks again whoever waits, or a steady flood would let it grow without end.
        """
        self._check_place()
        far = self._settings.events + self._settings.events // 10
        owed = 2 * added
        while owed > 0 and (self._database.events > far or not is_awaited()) and self.prune():
            owed -= _ROWS
        self.move_log()

    def move_log(self) -> None:
        """Empty the write-ahead log once it is long; to be called after a write, which is what makes it longer."""
        if self._database.log_bytes() >= _LOG_BYTES:
            self._database.move_log()

    def prune(self) -> bool:
        """Delete some of the events that are too many or too old; False = there were none."""
        excess = self._database.events - self._settings.events
        if excess > 0:
            return self._database.delete_events(_ALL, min(excess, _ROWS)) > 0
        self._look_at_ages()
        if not self._expired:
            return False
        deleted = self._database.delete_events(self._expired, _ROWS)
        if deleted < _ROWS:
            self._expired = 0
        return deleted > 0

    def _check_place(self) -> None:
        now = self._monotonic()
        if now >= self._next_place_check:
            self._next_place_check = now + _PLACE_CHECK
            self._database.check_place()

    def _look_at_ages(self) -> None:
        now = self._monotonic()
        rest = self._age_rest
        if rest is None or self._expired or now < self._next_age_check:
            return
        self._next_age_check = now + rest
        self._expired = self._database.events_before(self._clock.now() - self._settings.events_age)

    def _shrink(self) -> bool:
        unused, pages = self._database.free_pages()
        if unused <= max(_UNUSED_PAGES, pages // 4):
            return False
        self._database.shrink(_PAGES)
        return True
