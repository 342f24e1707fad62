"""How often workers may be started: a token bucket for the pool, back-off and a breaker for each profile."""

import random
from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from errors import PoolError
from pool.settings import PoolSettings
from wire.states import transition


class TokenBucket:
    """At most ``burst`` starts at once and ``rate`` a second on average.

    Kept as the theoretical arrival time of the next start (GCRA), so that "may I" and "when may I" compare the
    same number and can never disagree by a rounding error.
    """

    __slots__ = ("_arrival", "_interval", "_slack")

    def __init__(self, burst: int, rate: float) -> None:
        self._arrival = float("-inf")
        self._interval = 0.0
        self._slack = 0.0
        self.set_limits(burst, rate)

    def set_limits(self, burst: int, rate: float) -> None:
        """Change the limits; what was taken stays taken. ``burst`` >= 1, ``rate`` > 0."""
        self._interval = 1.0 / rate
        self._slack = (burst - 1) * self._interval

    def next_at(self, promised: int = 0) -> float:
        """When the next start is allowed, after those that are ``promised``; in the past if it is allowed already."""
        return self._arrival - self._slack + promised * self._interval

    def has_token(self, now: float) -> bool:
        """Whether a start is allowed at ``now``."""
        return now >= self._arrival - self._slack

    def consume(self, now: float) -> None:
        """Use up one start."""
        self._arrival = max(self._arrival, now) + self._interval


class BreakerState(StrEnum):
    """Whether a profile's workers may be started."""

    CLOSED = "closed"
    OPEN = "open"
    """Broken: acquires that would need a new worker fail at once."""
    HALF_OPEN = "half_open"
    """One trial start is let through."""


BREAKER_TRANSITIONS: Mapping[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.OPEN}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN, BreakerState.CLOSED}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.OPEN, BreakerState.CLOSED}),
}


class StartBudget:
    """One profile's starts: exponential back-off with full jitter, and a breaker over failures in a window.

    A failure is a start that did not come to be, or a worker that died before it ever served a conversation.
    Back-off and window are cleared by the first worker that does serve one (``proven``); a start that becomes ready
    closes the breaker, but does not yet clear the window, so that a crash right after ready is found out.
    """

    __slots__ = (
        *("_failures", "_streak", "_trial", "is_proven", "last_error", "losses", "opened_until", "retry_at", "state"),
    )

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self.retry_at = float("-inf")
        self.opened_until = float("-inf")
        self.last_error: PoolError | None = None
        self.losses = 0
        """Workers that ended without having been stopped, in their start too."""
        self.is_proven = False
        """Whether a worker of the profile ever served a conversation."""
        self._failures: deque[float] = deque()
        self._streak = 0
        self._trial = False

    @property
    def is_open(self) -> bool:
        """Whether acquires that need a new worker of this profile fail at once."""
        return self.state is BreakerState.OPEN

    def is_clean(self, now: float, window: float) -> bool:
        """Whether nothing is remembered that could still matter; nor does a trial without a request."""
        return (
            self.state is not BreakerState.OPEN
            and self.retry_at <= now
            and not (self._failures and self._failures[-1] > now - window)
        )

    def may_start(self, now: float) -> bool:
        """Whether back-off and breaker allow a start at ``now``."""
        if self.state is BreakerState.CLOSED:
            return now >= self.retry_at
        return self.state is BreakerState.HALF_OPEN and not self._trial

    def start_begun(self) -> None:
        """A start was made; in half-open it is the trial."""
        self._trial = self.state is BreakerState.HALF_OPEN

    def start_abandoned(self) -> None:
        """The start was stopped by us before it could succeed or fail; another trial may go."""
        self._trial = False

    def start_succeeded(self) -> bool:
        """A start succeeded; returns whether that closed the breaker."""
        self._trial = False
        if self.state is BreakerState.CLOSED:
            return False
        self.state = transition(BREAKER_TRANSITIONS, self.state, BreakerState.CLOSED)
        self.retry_at = float("-inf")
        return True

    def mark_proven(self) -> None:
        """A worker served its first conversation: the profile works."""
        self.is_proven = True
        self._streak = 0
        self._failures.clear()
        self.retry_at = float("-inf")

    def record_failure(self, now: float, error: PoolError, settings: PoolSettings, rng: random.Random) -> bool:
        """Charge one failure; returns whether it opened the breaker."""
        self.last_error = error
        self._trial = False
        self._streak += 1
        ceiling = min(settings.backoff_max, settings.backoff_min * 2.0 ** min(self._streak - 1, 60))
        self.retry_at = now + rng.uniform(0.0, ceiling)
        self._failures.append(now)
        while self._failures[0] <= now - settings.breaker_window or len(self._failures) > settings.breaker_failures:
            self._failures.popleft()
        if self.state is BreakerState.OPEN:
            return False
        if self.state is BreakerState.CLOSED and len(self._failures) < settings.breaker_failures:
            return False
        self.state = transition(BREAKER_TRANSITIONS, self.state, BreakerState.OPEN)
        self.opened_until = now + settings.breaker_half_open
        return True

    def half_open(self) -> None:
        """The breaker's time is over: let one trial through."""
        self.state = transition(BREAKER_TRANSITIONS, self.state, BreakerState.HALF_OPEN)
        self._trial = False
