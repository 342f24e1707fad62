"""Whether the disk takes what is written, and when to try again. Pure."""

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
