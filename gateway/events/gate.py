"""Which seq comes next, and up to which one readers may see: nothing after a durable event that is not committed."""

from collections import deque
from collections.abc import Iterator

__all__ = ["Gate"]


class Gate:
    """Pure. ``last`` is the last seq given out, ``head`` the last one that readers may see."""

    def __init__(self, first_seq: int) -> None:
        self.last = self.head = first_seq - 1
        self._held: deque[int] = deque()

    @property
    def is_open(self) -> bool:
        """Whether nothing waits for a commit."""
        return not self._held

    def number(self, count: int = 1, *, hold: bool = False) -> int:
        """Give out ``count`` seqs, return the first; with ``hold`` nothing from it on is seen before ``commit``."""
        first = self.last + 1
        self.last += count
        if hold:
            self._held.append(first)
        elif not self._held:
            self.head = self.last
        return first

    def commit(self, upto: int) -> None:
        """Everything up to this seq is durable, or never will be."""
        while self._held and self._held[0] <= upto:
            self._held.popleft()
        self.head = self._held[0] - 1 if self._held else self.last

    def cuts(self) -> Iterator[int]:
        """The seqs that ``head`` may stop short of, ascending."""
        return iter(self._held)
