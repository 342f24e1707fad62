"""Lanes: the runs of one session are strictly serial, first come, first served; sessions never wait for each other."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from errors import PoolSaturated
from gateway.settings import GatewaySettings

__all__ = ["Lanes"]


class Lanes:
    """All lanes. A lane exists only while somebody is in it or waits for it, so idle sessions cost nothing."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._waiting: dict[str, deque[trio.Event]] = {}
        self._total = 0

    def depth(self, session: str) -> int:
        """Runs in the session's lane: the running one and those that wait."""
        lane = self._waiting.get(session)
        return 0 if lane is None else 1 + len(lane)

    def check_room(self, session: str) -> None:
        """Raise PoolSaturated when one more run of this session, or of any, is more than may wait."""
        if self.depth(session) > self._settings.session_queue:
            raise PoolSaturated(
                f"session {session} already has {self._settings.session_queue} runs waiting; "
                "wait for them, or abort the running one",
                session=session,
                retry_after=1.0,
            )
        if self._total >= self._settings.pending_runs:
            raise PoolSaturated(
                f"{self._total} runs are pending, which is the limit (gateway.pending_runs)", retry_after=1.0
            )

    @asynccontextmanager
    async def enter(self, session: str) -> AsyncIterator[None]:
        """Wait for this session's turn, keep it for the length of the block, hand it on. Raises PoolSaturated."""
        self.check_room(session)
        self._total += 1
        try:
            await self._enter(session)
            try:
                yield
            finally:
                self._leave(session)
        finally:
            self._total -= 1

    async def _enter(self, session: str) -> None:
        lane = self._waiting.get(session)
        if lane is None:
            self._waiting[session] = deque()
            return
        turn = trio.Event()
        lane.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():  # it was handed over in the same moment: hand it on
                self._leave(session)
            else:
                lane.remove(turn)
            raise

    def _leave(self, session: str) -> None:
        lane = self._waiting[session]
        if lane:
            lane.popleft().set()
        else:
            del self._waiting[session]
