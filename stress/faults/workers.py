"""Faults of workers: killed or suspended (F1), invalid output (F2), workers that do not end (F3).

F2 and F3 happen inside a worker when a prompt asks for them. The load sends such prompts to some sessions, determined
by the seed; these faults have no events of their own.
"""

import math
import signal
from collections.abc import Sequence
from random import Random
from typing import ClassVar

import trio

from stress.facts import DAMAGED_TRANSCRIPT
from stress.faults.base import Fault, FaultEvent, FaultSetup, FaultTarget
from stress.faulty_agent import COMMAND, fault_word
from stress.plan import Plan
from stress.sampler import signal_process

_EVERY = 1.0
"""Mean seconds between two faults for 64 workers; in proportion for fewer."""
_REFERENCE_WORKERS = 64
_SHARE_OF_KILLS = 0.7
_SHORTEST, _LONGEST = 0.1, 60.0
_MIN_RATE = 1 / 5


class WorkerKills(Fault):
    """Hits any live worker in any state: starting, being reset, in a turn, idle, stopping."""

    name = "F1"
    explains = frozenset({"worker_exited", "worker_stalled", "request_timeout", "acquire_timeout", DAMAGED_TRANSCRIPT})

    def schedule(self, plan: Plan, rng: Random) -> Sequence[FaultEvent]:
        """Random times; lengths of suspensions are log-uniform."""
        rate = max(_MIN_RATE, plan.workers / _REFERENCE_WORKERS) / _EVERY
        strokes = []
        at = plan.calm + rng.expovariate(rate)
        while at < plan.longest:
            kind = "kill" if rng.random() < _SHARE_OF_KILLS else "suspend"
            seconds = math.exp(rng.uniform(math.log(_SHORTEST), math.log(_LONGEST)))
            strokes.append(
                FaultEvent(at=at, kind=kind, pick=rng.random(), amount=seconds if kind == "suspend" else 0.0)
            )
            at += rng.expovariate(rate)
        return strokes

    async def inject(self, stroke: FaultEvent, target: FaultTarget) -> None:
        """Kill or suspend a live worker; a suspended one continues after ``amount`` seconds, if it still lives."""
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(stroke.pick * len(victims))]
        target.record_fault(self.name, stroke.kind, worker=victim.name, pid=victim.pid, seconds=stroke.amount)
        if stroke.kind == "kill":
            signal_process(victim, signal.SIGKILL)
            return
        signal_process(victim, signal.SIGSTOP)
        try:
            await trio.sleep(stroke.amount)
        finally:
            signal_process(victim, signal.SIGCONT)


_AGENT, _ROLE = "faulty", "default"
_KIB, _MIB = 1024, 1024 * 1024
_LONGEST_LINE = "32MiB"
"""Above the longest legal line that is written here, and small enough to keep an endless line cheap."""


class _FaultyWorkers(Fault):
    """Base of F2 and F3: an agent of their own, and words that tell it what to do."""

    words: ClassVar[tuple[str, ...]]
    share: ClassVar[float]

    def prepare(self, plan: Plan) -> FaultSetup:
        """An agent whose workers obey the words; the seed determines the order of prompts."""
        words = list(self.words)
        Random(plan.seed).shuffle(words)  # noqa: S311 - the same choices for the same seed is the point
        return FaultSetup(
            settings={"agents": {_AGENT: {"command": list(COMMAND)}}, "rpc": {"max_line_bytes": _LONGEST_LINE}},
            profiles=((_AGENT, _ROLE),),
            share=self.share,
            prompts=tuple(f"{word} " for word in words),
        )


class FaultyOutput(_FaultyWorkers):
    """F2: a worker writes garbage, half, duplicate or endless lines, or answers no request."""

    name = "F2"
    share = 0.02
    words = (
        *(fault_word("garbage"), fault_word("garbage", 500), fault_word("bad-utf8"), fault_word("one-byte")),
        *(fault_word("half-line-stall"), fault_word("half-line-eof"), fault_word("half-line-exit")),
        *(fault_word("line", size) for size in (64 * _KIB - 1, 64 * _KIB, 64 * _KIB + 1, 16 * _MIB)),
        *(fault_word("endless-line"), fault_word("duplicate"), fault_word("unknown-id")),
        *(fault_word("late-id"), fault_word("late-answer")),
    )


class UnstoppableWorkers(_FaultyWorkers):
    """F3: a worker closes its streams, ignores its end, or leaves processes behind."""

    name = "F3"
    share = 0.01
    words = tuple(fault_word(name) for name in ("close-stdin", "close-stdout", "no-end", "heir", "daemon"))
