"""Keeps messages of one session in the order of their arrival; sessions do not wait for each other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

__all__ = ["SessionOrder"]


class SessionOrder:
    """A FIFO lock for each session with a message in progress."""

    def __init__(self) -> None:
        self._locks: dict[str, trio.StrictFIFOLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Hold the session's lock during the block."""
        lock = self._locks.setdefault(session, trio.StrictFIFOLock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else the next one in line has it
                self._locks.pop(session, None)
