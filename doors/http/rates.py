"""How many requests a second somebody may make: a bucket each, for a bounded number of them. Pure."""

from collections import OrderedDict

__all__ = ["Rates"]

_MOST_KEYS = 4096


class Rates:
    """``rate`` requests a second and key; a key that was quiet may have ``2 * rate`` at once. 0 = as many as come."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When a bucket is full again: all that there is to know of it."""

    def take(self, key: str, now: float) -> float:
        """Count a request of ``key``; the seconds after which it may be made, 0.0 = now. Else it is not counted."""
        if not self.rate:
            return 0.0
        full_at = max(self._full_at.get(key, now), now) + 1 / self.rate
        excess = full_at - now - 2.0
        if excess > 0:
            return excess
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > _MOST_KEYS:
            self._full_at.popitem(last=False)
        return 0.0
