"""One wait for the disk for all who wait at the same time."""

from collections.abc import Awaitable, Callable

import trio

__all__ = ["GroupCommit"]


class GroupCommit:
    """``wait`` returns after a ``commit`` that began after the call of ``wait``; there is never more than one at once.

    ``commit`` may raise: then each of those who waited for it tries, and fails, by itself.
    """

    def __init__(self, commit: Callable[[], Awaitable[None]]) -> None:
        self._commit = commit
        self._begun = 0
        self._done = 0
        self._running: trio.Event | None = None

    async def wait(self) -> None:
        """Wait until everything written before this call is committed. Raises what ``commit`` raises."""
        wanted = self._begun + 1
        # Whoever writes in the same breath shall be part of it: the others of a batch of tasks run before we go on.
        await trio.lowlevel.checkpoint()
        while self._done < wanted:
            if self._running is not None:
                await self._running.wait()
            else:
                await self._lead()

    async def _lead(self) -> None:
        self._running = trio.Event()
        self._begun += 1
        number = self._begun
        try:
            await self._commit()
            self._done = number
        finally:
            self._running.set()
            self._running = None
