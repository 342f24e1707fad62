"""How much of a CPU may be spent on connections that have shown no token, all of them together. Pure."""

__all__ = ["Allowance"]


class Allowance:
    """``share`` CPU seconds a second, of which ``burst`` seconds at most are saved up. It may be overdrawn."""

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share = share
        self._burst = burst
        self._balance = burst
        self._at = now

    def spend(self, seconds: float, now: float) -> None:
        """Take CPU seconds off; a negative number gives them back."""
        self._advance(now)
        self._balance = min(self._balance - seconds, self._burst)

    def wait(self, now: float) -> float:
        """After how many seconds something may be spent again; 0.0 = now."""
        self._advance(now)
        return max(0.0, -self._balance / self._share)

    def _advance(self, now: float) -> None:
        self._balance = min(self._balance + (now - self._at) * self._share, self._burst)
        self._at = now
