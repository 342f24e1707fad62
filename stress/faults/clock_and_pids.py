"""F7: the supervisor's wall clock is an hour ahead or behind for a while; strangers get the pids of dead workers.

A stranger takes exactly the pid that it wants, in the pid namespace that everybody is in: what a small namespace in
which pids come round soon would do by chance happens at each stroke. It needs a capability; where that is missing,
each such stroke says so and does nothing.
"""

import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import trio

from stress.facts import DAMAGED, EVERYBODY, Stranger, WorkerProcess
from stress.faults.helpers import Helper, gone_through_with, helper_process
from stress.faults.port import Preparation, Stroke, Target
from stress.faults.times import spread
from stress.plan import Plan
from stress.stranger import COMMAND, SIGNALLED, THERE, why_not
from stress.tampered_supervisor import WRAPPER
from stress.tampering import Tampering

__all__ = ["ClockAndPids"]

_EVERY = 20.0
_HOUR = 3600.0
_CLOCK_KINDS = {
    "clock_ahead": (2.0, 20.0),
    "clock_behind": (2.0, 20.0),
    "pid": (2.0, 5.0),
    "pids_of_a_life": (4.0, 8.0),
}
"""The amount: seconds until the clock is right again, or for which a stranger has the pid."""
_MOST_STRANGERS = 4


class ClockAndPids:
    """``pid``: of a worker that is killed; ``pids_of_a_life``: of the workers of a supervisor that is killed."""

    name = "F7"
    explains = frozenset({"interrupted", "worker_exited", DAMAGED, "request_timeout"})

    def __init__(self) -> None:
        self._one_clock = trio.Lock()

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """A supervisor whose wall clock can be set."""
        return Preparation(wrapper=WRAPPER)

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """Each of them as often as the others."""
        return spread(plan, rng, _CLOCK_KINDS, every=_EVERY)

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """One of them; says so where this machine does not allow it."""
        if stroke.kind.startswith("clock"):
            await self._move_clock(stroke, target)
        elif reason := why_not():
            target.tell(self.name, f"{stroke.kind}: unavailable, {reason}", hurts=False)
        elif stroke.kind == "pid":
            await self._take_pid(stroke, target)
        else:
            await self._take_pids_of_a_life(stroke, target)

    async def _move_clock(self, stroke: Stroke, target: Target) -> None:
        async with self._one_clock:
            target.tell(self.name, stroke.kind, worker=EVERYBODY, seconds=stroke.amount, hurts=False)
            tampering = Tampering.of(target.data_dir)
            tampering.clock_offset = _HOUR if stroke.kind == "clock_ahead" else -_HOUR
            try:
                await trio.sleep(stroke.amount)
            finally:
                tampering.clock_offset = 0.0

    async def _take_pid(self, stroke: Stroke, target: Target) -> None:
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(stroke.pick * len(victims))]
        async with helper_process(_stranger(victim)) as stranger:
            target.tell(self.name, "kill", worker=victim.name, pid=victim.pid)
            target.signal(victim, signal.SIGKILL)
            if await self._is_there(stranger, victim, target):
                await trio.sleep(stroke.amount)
                await _part(stranger, victim, target)

    async def _take_pids_of_a_life(self, stroke: Stroke, target: Target) -> None:
        """The next supervisor reads whom the last one has left behind, and finds strangers."""
        async with target.ending, AsyncExitStack() as stack, gone_through_with(target):
            victims = target.workers()[:_MOST_STRANGERS]
            target.tell(self.name, "kill_supervisor", worker=EVERYBODY, pid=target.supervisor or 0)
            await target.kill(signal.SIGKILL)
            strangers = [await stack.enter_async_context(helper_process(_stranger(victim))) for victim in victims]
            present = [
                (stranger, victim)
                for stranger, victim in zip(strangers, victims, strict=True)
                if await self._is_there(stranger, victim, target)
            ]
            await target.restart()
            await trio.sleep(stroke.amount)
            for stranger, victim in present:
                await _part(stranger, victim, target)

    async def _is_there(self, stranger: Helper, victim: WorkerProcess, target: Target) -> bool:
        """As soon as the pid is free; says so where somebody else was faster."""
        answer = await stranger.line()
        if answer != THERE:
            reason = answer or "the stranger ended"
            target.tell(self.name, f"pid: unavailable, {reason}", pid=victim.pid, hurts=False)
        return answer == THERE


def _stranger(victim: WorkerProcess) -> list[str]:
    return [*COMMAND, str(victim.pid)]


async def _part(stranger: Helper, victim: WorkerProcess, target: Target) -> None:
    """Tell what became of it."""
    await stranger.dismiss()
    target.see(Stranger(t=target.now(), pid=victim.pid, signalled=await stranger.line() == SIGNALLED))
