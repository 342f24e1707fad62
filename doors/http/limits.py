"""Limits of the HTTP port: which connection is evicted, requests per second, CPU time without a token. Pure."""

from collections import OrderedDict
from enum import Enum, auto
from typing import Generic, TypeVar

C = TypeVar("C")


class Rank(Enum):
    """How a connection stands."""

    ANONYMOUS = auto()
    """It has shown no token, whatever it does: the one that came first gives way first."""
    IDLE = auto()
    """Its last request had one; it waits for the next: after them, the one that has rested longest."""
    BUSY = auto()
    """A request with a token is on: it stays."""


class ConnectionLimiter(Generic[C]):
    """Connections by rank, each rank in the order in which they came to it."""

    def __init__(self) -> None:
        self._ranks: dict[Rank, dict[C, None]] = {rank: {} for rank in Rank}
        self._rank_of: dict[C, Rank] = {}

    def __len__(self) -> int:
        return len(self._rank_of)

    def set_rank(self, member: C, rank: Rank) -> None:
        """It stands so from now on; keeps its place where that is no news."""
        before = self._rank_of.get(member)
        if before is not rank:
            self.remove(member)
            self._rank_of[member] = rank
            self._ranks[rank][member] = None

    def remove(self, member: C) -> None:
        """It has gone."""
        rank = self._rank_of.pop(member, None)
        if rank is not None:
            del self._ranks[rank][member]

    def members(self) -> list[C]:
        """All of them."""
        return list(self._rank_of)

    def eviction_candidate(self) -> C | None:
        """Who is to give way; None where all are busy."""
        for rank in (Rank.ANONYMOUS, Rank.IDLE):
            found = next(iter(self._ranks[rank]), None)
            if found is not None:
                return found
        return None


_MOST_KEYS = 4096


class RateLimiter:
    """``rate`` requests a second and key; a key that was quiet may have ``2 * rate`` at once. 0 = as many as come."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When a bucket is full again: all that there is to know of it."""

    def acquire(self, key: str, rate: int, now: float) -> float:
        """Count a request of ``key``; the seconds after which it may be made, 0.0 = now. Else it is not counted."""
        if not rate:
            return 0.0
        full_at = max(self._full_at.get(key, now), now) + 1 / rate
        excess = full_at - now - 2.0
        if excess > 0:
            return excess
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > _MOST_KEYS:
            self._full_at.popitem(last=False)
        return 0.0


class CpuBudget:
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

    def delay(self, now: float) -> float:
        """After how many seconds something may be spent again; 0.0 = now."""
        self._advance(now)
        return max(0.0, -self._balance / self._share)

    def _advance(self, now: float) -> None:
        self._balance = min(self._balance + (now - self._at) * self._share, self._burst)
        self._at = now
