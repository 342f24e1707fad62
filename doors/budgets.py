"""What all peers of a door together may make the supervisor hold: large requests, and what waits to be sent."""

from collections.abc import Callable

from errors import PoolSaturated

_FREE_INPUT_BYTES = 64 * 1024


class InputBudget:
    """What all connections together may hold of large requests."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._used = 0

    def adjust(self, difference: int) -> bool:
        """Take more, or give back where negative; False when more is used than there is."""
        self._used += difference
        return self._used <= self.limit


class InputShare:
    """What one connection holds of the budget: all beyond the first 64 KiB."""

    def __init__(self, budget: InputBudget) -> None:
        self._budget = budget
        self.charged = 0

    def charge(self, held: int) -> None:
        """``held`` bytes are held now. Raises PoolSaturated, with nothing charged any more, when it is too much."""
        share = max(0, held - _FREE_INPUT_BYTES)
        difference, self.charged = share - self.charged, share
        if difference and not self._budget.adjust(difference) and difference > 0:
            self.release(0)  # at once: other peers must not be refused for it
            raise PoolSaturated("the supervisor holds too many large requests at the moment", retry_after=1.0)

    def release(self, held: int) -> None:
        """Lower what is held to this many bytes."""
        share = min(self.charged, max(0, held - _FREE_INPUT_BYTES))
        self._budget.adjust(share - self.charged)
        self.charged = share


class OutputBudget:
    """What may wait for all peers together. Where it is too much, the peer for whom most waits is given up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._shares: set[OutputShare] = set()

    def adjust(self, share: "OutputShare", difference: int) -> None:
        """The share has become so much larger, or smaller where negative."""
        self._used += difference
        if share.charged:
            self._shares.add(share)
        else:
            self._shares.discard(share)
        while self._used > self._limit:
            max(self._shares, key=lambda waiting: waiting.charged).discard()


class OutputShare:
    """What waits for one peer, beyond the ``free`` bytes that each of them has."""

    def __init__(self, budget: OutputBudget, *, free: int, on_excess: Callable[[int], None]) -> None:
        """``on_excess`` is called with the bytes charged; from then on the share is given back and takes no more."""
        self._budget = budget
        self.free = free
        self._on_excess = on_excess
        self._is_discarded = False
        self.charged = 0

    def charge(self, held: int) -> None:
        """``held`` bytes wait now. May give up any share of the budget, this one too."""
        charged = 0 if self._is_discarded else max(0, held - self.free)
        if difference := charged - self.charged:
            self.charged = charged
            self._budget.adjust(self, difference)

    def discard(self) -> None:
        """Release all that waits for this peer."""
        charged = self.charged
        self._is_discarded = True
        self.charge(0)
        self._on_excess(charged)
