"""Messages of one session pass one after the other, in the order in which they came; those of others beside them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

__all__ = ["SessionOrder"]


class SessionOrder:
    """One lock for each session in which a message is on its way."""

    def __init__(self) -> None:
        self._locks: dict[str, trio.StrictFIFOLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Wait until what came before has passed, and keep what comes after back until the end of the block."""
        lock = self._locks.setdefault(session, trio.StrictFIFOLock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else it has gone to the next one
                self._locks.pop(session, None)
