"""Who is connected, and who gives way when there is no room for another: first whoever has shown no token. Pure."""

from enum import Enum, auto
from typing import Generic, TypeVar

__all__ = ["Crowd", "Rank"]

C = TypeVar("C")


class Rank(Enum):
    """How a connection stands."""

    STRANGER = auto()
    """It has shown no token, whatever it does: the one that came first gives way first."""
    RESTING = auto()
    """Its last request had one; it waits for the next: after them, the one that has rested longest."""
    BUSY = auto()
    """A request with a token is on: it stays."""


class Crowd(Generic[C]):
    """Connections by rank, each rank in the order in which they came to it."""

    def __init__(self) -> None:
        self._ranks: dict[Rank, dict[C, None]] = {rank: {} for rank in Rank}
        self._rank_of: dict[C, Rank] = {}

    def __len__(self) -> int:
        return len(self._rank_of)

    def put(self, member: C, rank: Rank) -> None:
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

    def victim(self) -> C | None:
        """Who is to give way; None where all are busy."""
        for rank in (Rank.STRANGER, Rank.RESTING):
            found = next(iter(self._ranks[rank]), None)
            if found is not None:
                return found
        return None
