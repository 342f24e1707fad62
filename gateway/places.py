"""Lanes: the runs of one session are strictly serial, first come, first served; sessions never wait for each other."""

from collections import deque
from types import TracebackType

import trio

from errors import PoolSaturated
from gateway.settings import GatewaySettings

__all__ = ["Lanes", "Place"]


class Place:
    """A place in a session's lane, taken the moment it is made. Use it as ``async with place``: wait, run, hand on."""

    def __init__(self, lanes: "Lanes", session: str) -> None:
        self.session = session
        self.turn = trio.Event()
        self._lanes = lanes

    async def __aenter__(self) -> None:
        try:
            await self.turn.wait()
        except trio.Cancelled:
            self._lanes.leave(self)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lanes.leave(self)


class Lanes:
    """All lanes. A lane exists only while somebody is in it, so idle sessions cost nothing."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._lanes: dict[str, deque[Place]] = {}
        self._total = 0

    def depth(self, session: str) -> int:
        """Runs in the session's lane: the running one and those that wait."""
        return len(self._lanes.get(session, ()))

    def join(self, session: str) -> Place:
        """Take the next place in the session's lane. Raises PoolSaturated when the lane, or all of them, are full."""
        self._check_room(session)
        place = Place(self, session)
        lane = self._lanes.setdefault(session, deque())
        lane.append(place)
        self._total += 1
        if lane[0] is place:
            place.turn.set()
        return place

    def leave(self, place: Place) -> None:
        """Give a place back, waited for or not; the next one in the lane has its turn."""
        lane = self._lanes[place.session]
        lane.remove(place)
        self._total -= 1
        if lane:
            lane[0].turn.set()
        else:
            del self._lanes[place.session]

    def _check_room(self, session: str) -> None:
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
