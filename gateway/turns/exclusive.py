"""Exclusive access to a session, for a hold or an administrative job: it waits in the lane like a run."""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count

import trio

from errors import AcquireTimeout, PoolSaturated
from gateway.lanes.messages import LaneStimulus, RejectRun, StartTurn, Submit, TurnEnded, Withdraw
from wire.messages import QueueMode


class _AccessRequest:
    """``decided`` is set once it has the session, or was rejected."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.rejection: str | None = None
        self.decided = trio.Event()


class ExclusiveAccess:
    """All requests by their names in the lanes. While one is granted, no turn of its session runs."""

    def __init__(self, send: Callable[[LaneStimulus], None]) -> None:
        """``send`` has the lanes handle a stimulus."""
        self._send = send
        self._requests: dict[str, _AccessRequest] = {}
        self._names = count(1)

    @asynccontextmanager
    async def acquire(
        self,
        session: str,
        *,
        priority: int = 5,
        timeout: float | None = None,  # noqa: ASYNC109  # for the wait alone
        on_queued: Callable[[], None] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Hold the session once its running turn and what is ahead in its lane have ended.

        ``on_queued`` is called when the request has its place in the lane: what is submitted later comes after it.
        Raises PoolSaturated when the lane refuses, AcquireTimeout when it takes longer than ``timeout`` seconds.
        """
        name = f"j{next(self._names)}"
        request = self._requests[name] = _AccessRequest()
        self._send(
            Submit(run=name, session=session, text="", mode=QueueMode.FOLLOWUP, priority=priority, exclusive=True)
        )
        if on_queued is not None:
            on_queued()
        try:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                await request.decided.wait()
            if not request.decided.is_set():
                raise AcquireTimeout(f"session {session} was busy for all of {timeout:.4g} s", session=session)
            if request.rejection is not None:
                raise PoolSaturated(request.rejection, session=session, retry_after=1.0)
            yield
        finally:
            del self._requests[name]
            if request.turn is not None:
                self._send(TurnEnded(request.turn))
            elif request.rejection is None:
                self._send(Withdraw(name))

    def grant(self, start: StartTurn) -> None:
        """The request has the session."""
        request = self._requests[start.runs[0]]
        request.turn = start.turn
        request.decided.set()

    def reject(self, refusal: RejectRun) -> None:
        """The lane rejected the request."""
        request = self._requests[refusal.run]
        request.rejection = refusal.text
        request.decided.set()
