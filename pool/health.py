"""Is a worker alive, answering, getting on? Pure decisions from what was observed; the shell pings, aborts and kills.

Three questions are kept apart. *Responsive*: pings are answered in time, ``ping_failures`` unanswered ones in a row
are the end. *Progressing*: a turn in which nothing happens for ``turn_stall`` is aborted, then its worker is killed;
the clock stands while the turn waits for a person. (*Started* and *alive* need no judgement: the client tells.)
A worker whose output we ourselves do not read (backpressure) cannot answer, so it is not asked.
"""

from collections.abc import Callable
from enum import Enum

import msgspec

from pool.settings import PoolSettings


class HealthDecision(Enum):
    """What to do about a worker now."""

    FINE = "fine"
    PING = "ping"
    ABORT_TURN = "abort_turn"
    UNRESPONSIVE = "unresponsive"
    STALLED = "stalled"


class Observation(msgspec.Struct, frozen=True):
    """What the shell sees of a worker when it looks.

    ``events`` counts the worker's events so far (answers to pings are none); ``backpressured`` means that we do not
    read its output at the moment; ``awaits_person`` that its turn waits for an approval or a dialog.
    """

    events: int
    in_turn: bool
    backpressured: bool = False
    awaits_person: bool = False


class Health:
    """One worker's record. Times are seconds on the machine's clock; ``settings`` gives the limits now in force."""

    def __init__(self, settings: Callable[[], PoolSettings], now: float) -> None:
        self._settings = settings
        self._next_ping = now + settings().ping_interval_idle
        self._pinging = False
        self.failures = 0
        """Unanswered pings in a row."""
        self._events = -1
        self._checked_at = self._progress_at = now
        self._abort_at: float | None = None
        self._in_turn = False
        self.last_ping: float | None = None
        """When the last ping was answered."""

    def next_check(self) -> float:
        """When ``check`` is due, if nothing happens before.

        A turn may have begun right after the last check: checks are never further apart than ``turn_stall``, and a
        silent turn is found after once to twice that time.
        """
        due = min(self._next_ping, self._checked_at + self._settings().turn_stall)
        if self._in_turn:
            due = min(due, self._stall_due())
        return due

    def check(self, seen: Observation, now: float) -> HealthDecision:
        """Judge what is seen; the caller acts on it and reports a ping as ``ping_answered`` or ``ping_failed``."""
        self._checked_at = now
        verdict = self._progress(seen, now)
        return verdict if verdict is not HealthDecision.FINE else self._responsiveness(seen, now)

    def ping_answered(self, now: float) -> None:
        """The ping that was sent last came back."""
        self.last_ping = now
        self._pinging = False
        self.failures = 0

    def ping_failed(self) -> None:
        """The ping that was sent last did not come back within ``ping_timeout``."""
        self._pinging = False
        self.failures += 1

    def ping_inconclusive(self) -> None:
        """Its answer may wait behind output that we did not read meanwhile: it proves nothing, either way."""
        self._pinging = False

    def _progress(self, seen: Observation, now: float) -> HealthDecision:
        moved = seen.events != self._events or seen.awaits_person or seen.backpressured
        if moved or not seen.in_turn or not self._in_turn:
            self._events = seen.events
            self._progress_at = now
            self._abort_at = None
        self._in_turn = seen.in_turn
        if not seen.in_turn or now < self._stall_due():
            return HealthDecision.FINE
        if self._abort_at is None:
            self._abort_at = now
            return HealthDecision.ABORT_TURN
        return HealthDecision.STALLED

    def _stall_due(self) -> float:
        if self._abort_at is not None:
            return self._abort_at + self._settings().ping_timeout
        return self._progress_at + self._settings().turn_stall

    def _responsiveness(self, seen: Observation, now: float) -> HealthDecision:
        if self.failures >= self._settings().ping_failures:
            return HealthDecision.UNRESPONSIVE
        interval = self._settings().ping_interval_busy if seen.in_turn else self._settings().ping_interval_idle
        if self._pinging or seen.backpressured:
            self._next_ping = max(self._next_ping, now + interval)
            return HealthDecision.FINE
        if now < self._next_ping and self.failures == 0:
            return HealthDecision.FINE
        self._next_ping = now + interval
        self._pinging = True
        return HealthDecision.PING
