"""How much may wait for front ends that do not read: each of them, and all together."""

from collections.abc import Callable, Iterable
from typing import Protocol

from errors import PoolError, SubscriberBehind

__all__ = ["MOST_OF_ALL", "MOST_OF_ONE", "Budget", "Reader"]

MOST_OF_ONE = 64 * 1024 * 1024
MOST_OF_ALL = 256 * 1024 * 1024
"""Bytes. A turn of pi repeats its whole text with each piece: 2,000 pieces of 10 bytes are 42 MB."""


class Reader(Protocol):
    """Somebody for whom lines wait."""

    @property
    def waiting_bytes(self) -> int:
        """How much waits."""
        ...

    def end(self, error: PoolError) -> None:
        """It waits in vain."""
        ...


class Budget:
    """``readers``: all of them, at the moment of the call."""

    def __init__(self, readers: Callable[[], Iterable[Reader]]) -> None:
        self._readers = readers

    def check(self, reader: Reader) -> None:
        """More waits for this reader now: give up whoever lets too much of it gather."""
        if reader.waiting_bytes > MOST_OF_ONE:
            _give_up(reader)
        elif reader.waiting_bytes > MOST_OF_ONE // 64:  # small change cannot break the budget
            while sum(each.waiting_bytes for each in self._readers()) > MOST_OF_ALL:
                _give_up(max(self._readers(), key=lambda each: each.waiting_bytes))


def _give_up(reader: Reader) -> None:
    waiting = reader.waiting_bytes
    reader.end(SubscriberBehind(f"{waiting:,} bytes of the agent's output wait and are not read; read faster"))
