"""F1: workers are killed with SIGKILL, or suspended for 0.1 to 60 seconds."""

import math
import signal
from collections.abc import Sequence
from random import Random

import trio

from stress.facts import DAMAGED
from stress.faults.port import Preparation, Stroke, Target
from stress.plan import Plan

__all__ = ["HurtWorkers"]

_EVERY = 1.0
"""One a second on average, for 64 workers; fewer for fewer."""
_USUAL_WORKERS = 64
_SHARE_OF_KILLS = 0.7
_SHORTEST, _LONGEST = 0.1, 60.0
_LEAST_RATE = 1 / 5


class HurtWorkers:
    """Any live worker, whatever it does at that moment: starting, being reset, in a turn, idle, stopping."""

    name = "F1"
    explains = frozenset({"worker_exited", "worker_stalled", "request_timeout", "acquire_timeout", DAMAGED})

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """Nothing: this can be done to any pool."""
        return Preparation()

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """At random times; the lengths of suspensions are spread evenly over their orders of magnitude."""
        rate = max(_LEAST_RATE, plan.workers / _USUAL_WORKERS) / _EVERY
        strokes = []
        at = plan.calm + rng.expovariate(rate)
        while at < plan.longest:
            kind = "kill" if rng.random() < _SHARE_OF_KILLS else "suspend"
            seconds = math.exp(rng.uniform(math.log(_SHORTEST), math.log(_LONGEST)))
            strokes.append(Stroke(at=at, kind=kind, pick=rng.random(), amount=seconds if kind == "suspend" else 0.0))
            at += rng.expovariate(rate)
        return strokes

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """Hit one of those that live now; one that is suspended goes on after its time, if it still lives."""
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(stroke.pick * len(victims))]
        target.tell(self.name, stroke.kind, worker=victim.name, pid=victim.pid, seconds=stroke.amount)
        if stroke.kind == "kill":
            target.signal(victim, signal.SIGKILL)
            return
        target.signal(victim, signal.SIGSTOP)
        try:
            await trio.sleep(stroke.amount)
        finally:
            target.signal(victim, signal.SIGCONT)
