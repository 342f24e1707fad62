"""Jobs: somebody has a session to itself for a while, in its lane like a run, without a turn of an agent."""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count

import trio

from errors import AcquireTimeout, PoolSaturated
from gateway.lanes.messages import LaneStimulus, RejectRun, StartTurn, Submit, TurnEnded, Withdraw
from gateway.settings import QueueMode


class _AccessRequest:
    """One job on its way: ``decided`` once it has its turn, or never will."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.rejection: str | None = None
        self.decided = trio.Event()


class ExclusiveAccess:
    """All jobs by their names in the lanes. While one has its turn no other turn of its session runs, none starts."""

    def __init__(self, tell: Callable[[LaneStimulus], None]) -> None:
        """``tell`` takes what the lanes are to know."""
        self._send = tell
        self._requests: dict[str, _AccessRequest] = {}
        self._names = count(1)

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, name: str) -> bool:
        return name in self._requests

    @asynccontextmanager
    async def acquire(
        self,
        session: str,
        *,
        priority: int = 5,
        timeout: float | None = None,  # noqa: ASYNC109  # for the wait alone
    ) -> AsyncGenerator[None, None]:
        """Have the session to oneself, once its running turn and what is ahead in its lane have ended.

        Raises PoolSaturated when the lane refuses, AcquireTimeout when it takes longer than ``timeout`` seconds.
        """
        name = f"j{next(self._names)}"
        job = self._requests[name] = _AccessRequest()
        self._send(
            Submit(run=name, session=session, text="", mode=QueueMode.FOLLOWUP, priority=priority, exclusive=True)
        )
        try:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                await job.decided.wait()
            if not job.decided.is_set():
                raise AcquireTimeout(f"session {session} was busy for all of {timeout:.4g} s", session=session)
            if job.rejection is not None:
                raise PoolSaturated(job.rejection, session=session, retry_after=1.0)
            yield
        finally:
            del self._requests[name]
            if job.turn is not None:
                self._send(TurnEnded(job.turn))
            elif job.rejection is None:
                self._send(Withdraw(name))

    def grant(self, start: StartTurn) -> None:
        """The job has its turn."""
        job = self._requests[start.runs[0]]
        job.turn = start.turn
        job.decided.set()

    def reject(self, refusal: RejectRun) -> None:
        """The job will have none."""
        job = self._requests[refusal.run]
        job.rejection = refusal.text
        job.decided.set()
