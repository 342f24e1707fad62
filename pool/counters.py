"""What the machine has counted since its start."""

from collections import Counter

__all__ = ["Counters"]


class Counters:
    """Plain sums; ``grants == releases + lost + active holds`` at any moment."""

    __slots__ = (
        "cancelled",
        "enqueued",
        "evicted",
        "exits",
        "expired",
        "grants",
        "lost",
        "parked",
        "refused",
        "releases",
        "resumed",
        "served",
        "spawned",
        "stalled",
    )

    def __init__(self) -> None:
        self.spawned = 0
        self.exits: Counter[str] = Counter()
        """Reaped processes by cause: a StopReason, a FailureKind or ``crashed``."""
        self.evicted = 0
        self.parked = 0
        self.resumed = 0
        self.grants: Counter[str] = Counter()
        """Grants by match level."""
        self.releases = 0
        self.lost = 0
        """Holds that ended with their worker's death."""
        self.enqueued = 0
        self.served = 0
        """Requests that had to wait and were granted."""
        self.expired = 0
        self.refused = 0
        self.cancelled = 0
        self.stalled = 0
        """Turns that were aborted because nothing happened in them."""
