"""F5: the supervisor is killed at any moment, or told twice to end while it starts workers or while it drains."""

import signal
from collections.abc import Sequence
from random import Random

import trio

from stress.facts import DAMAGED, EVERYBODY
from stress.faults.helpers import gone_through_with
from stress.faults.port import Preparation, Stroke, Target
from stress.faults.times import spread
from stress.plan import Plan

__all__ = ["EndedSupervisors"]

_EVERY = 20.0
_END_KINDS = {"kill_supervisor": (0.0, 0.0), "end_twice_in_drain": (0.0, 0.5), "end_twice_in_spawn": (0.0, 0.5)}
"""The amount: seconds between the two signals."""
_SPAWN_SECONDS = 0.5
"""For so long after its start, with work waiting for it, a supervisor certainly starts workers."""


class EndedSupervisors:
    """The next supervisor is started as soon as the last one has ended."""

    name = "F5"
    explains = frozenset({"interrupted", "pool_closed", "worker_exited", DAMAGED, "request_timeout"})

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """Nothing, but that the supervisor must be ours."""
        return Preparation(ends=True)

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """Each way to end as often as the others."""
        return spread(plan, rng, _END_KINDS, every=_EVERY)

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """One end, and the next life: once begun it is gone through with, or nobody would be left to ask."""
        async with target.ending, gone_through_with(target):
            await self._end(stroke, target)
            await target.restart()

    async def _end(self, stroke: Stroke, target: Target) -> None:
        """In the spawn: ``pick`` says how soon after the supervisor's start."""
        if stroke.kind == "end_twice_in_spawn":
            await self._kill(target)
            await target.restart()
            await trio.sleep(stroke.pick * _SPAWN_SECONDS)
        if stroke.kind == "kill_supervisor":
            await self._kill(target)
        else:
            target.tell(self.name, stroke.kind, worker=EVERYBODY, pid=target.supervisor or 0)
            await _end_twice(stroke.amount, target)

    async def _kill(self, target: Target) -> None:
        target.tell(self.name, "kill_supervisor", worker=EVERYBODY, pid=target.supervisor or 0)
        await target.kill(signal.SIGKILL)


async def _end_twice(seconds: float, target: Target) -> None:
    """The first signal may well have ended it before the second one is due."""
    async with trio.open_nursery() as nursery:

        async def first() -> None:
            await target.kill(signal.SIGTERM)
            nursery.cancel_scope.cancel()

        nursery.start_soon(first)
        await trio.sleep(seconds)
        await target.kill(signal.SIGTERM)
        nursery.cancel_scope.cancel()
