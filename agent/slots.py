"""A bounded number of places, handed out strictly in the order in which they were asked for."""

from collections import deque

import trio

__all__ = ["Slots"]


class Slots:
    """Unlike a semaphore's, the order is that of ``ticket``, which does not wait, and not that of the tasks' waits."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[trio.Event] = deque()

    def ticket(self) -> trio.Event:
        """Stand in line; the event is set once the place is yours, to be given back with ``give_back``."""
        turn = trio.Event()
        self._waiting.append(turn)
        self._serve()
        return turn

    def give_back(self) -> None:
        """Let the next one have the place."""
        self._free += 1
        self._serve()

    def _serve(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.popleft().set()
