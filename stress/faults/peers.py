"""Faults of the supervisor's peers: workers and front ends.

F1: workers are killed or suspended. F2: they write invalid output. F3: they do not end. F2 and F3 have no events of
their own: the load sends prompts that ask for them to some sessions, determined by the seed.

F6: a front end dies between the grant of its worker and the answer; its run must still end.
"""

import itertools
import math
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import ClassVar

import trio

from errors import PoolError, UsageError
from stress.agents import AGENTS, AgentKind
from stress.connection import ReconnectingClient
from stress.facts import DAMAGED_TRANSCRIPT, OrphanedRunEnded
from stress.faults.base import Fault, FaultEvent, FaultSetup, FaultTarget, helper_process
from stress.helper_programs import FRONT_END, GRANTED
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

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """Kill or suspend a live worker; a suspended one continues after ``amount`` seconds, if it still lives."""
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(event.pick * len(victims))]
        target.record_fault(self.name, event.kind, worker=victim.name, pid=victim.pid, seconds=event.amount)
        if event.kind == "kill":
            signal_process(victim, signal.SIGKILL)
            return
        signal_process(victim, signal.SIGSTOP)
        try:
            await trio.sleep(event.amount)
        finally:
            signal_process(victim, signal.SIGCONT)


_AGENT, _ROLE = "faulty", "default"
_MAX_SHARE = 0.06
"""Of all requests, in a run so short that else some words would not be said."""
_LONGEST_LINE = "32MiB"
"""Above the longest legal line that is written here, and small enough to keep an endless line cheap."""


class _FaultyWorkers(Fault, ABC):
    """Base of F2 and F3: an agent of their own, and words that tell it what to do."""

    share: ClassVar[float]

    @staticmethod
    @abstractmethod
    def words_of(kind: AgentKind) -> tuple[str, ...]:
        """What the prompts begin with."""

    def prepare(self, plan: Plan) -> FaultSetup:
        """An agent whose workers obey the words; the seed determines the order of prompts."""
        kind = AGENTS[plan.agents]
        words = list(self.words_of(kind))
        Random(plan.seed).shuffle(words)  # noqa: S311 - the same choices for the same seed is the point
        return FaultSetup(
            settings={"agents": {_AGENT: kind.faulty}, "rpc": {"max_line_bytes": _LONGEST_LINE}},
            profiles=((_AGENT, _ROLE),),
            share=max(self.share, min(_MAX_SHARE, len(words) / plan.requests)),
            prompts=tuple(f"{word} " for word in words),
        )


class FaultyOutput(_FaultyWorkers):
    """F2: a worker writes garbage, half, duplicate or endless lines, or answers no request."""

    name = "F2"
    share = 0.02

    @staticmethod
    def words_of(kind: AgentKind) -> tuple[str, ...]:
        """Those for invalid output."""
        return kind.invalid


class UnstoppableWorkers(_FaultyWorkers):
    """F3: a worker closes its streams, ignores its end, or leaves processes behind."""

    name = "F3"
    share = 0.01

    @staticmethod
    def words_of(kind: AgentKind) -> tuple[str, ...]:
        """Those that make it hard to end."""
        return kind.unending


_TURN_MS = 500
"""Duration of the run; the front end dies within it, counted from the grant."""
_GRANT_SECONDS = 60.0
_OUTCOME_SECONDS = 90.0
_PAUSE = 0.1


class FrontEndKills(Fault):
    """Each front end is a process with a session of its own, independent of the load."""

    name = "F6"
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = {"kill_front_end": (0.0, _TURN_MS / 1000)}
    """The amount: seconds from the grant to the death."""
    every = 5.0

    def __init__(self) -> None:
        self._name = f"lost-front-end-{os.urandom(4).hex()}"  # an attached supervisor knows earlier runs
        self._numbers = itertools.count(1)
        self._open: set[str] = set()
        self._changed = trio.Event()

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """Record the fault as unavailable if the supervisor ends before the grant, or is too busy for one."""
        run = f"{self._name}-{next(self._numbers)}"
        self._open.add(run)
        try:
            await self._kill_front_end(run, event, target)
        finally:
            self._open.remove(run)
            self._changed.set()
            self._changed = trio.Event()

    async def settle(self) -> None:
        """Wait until the run of each killed front end has ended."""
        while self._open:
            await self._changed.wait()

    async def _kill_front_end(self, run: str, event: FaultEvent, target: FaultTarget) -> None:
        async with helper_process([*FRONT_END, str(target.socket), run, run, f"DELAY={_TURN_MS} {run}"]) as front_end:
            said = f"nothing in {_GRANT_SECONDS:g} s"
            with trio.move_on_after(_GRANT_SECONDS):
                said = await front_end.read_line() or "nothing, and ended"
            if said != GRANTED:
                why = f"its front end said {said}"
                target.record_fault(self.name, f"{event.kind}: unavailable, {why}", hurts=False)
                return
            await trio.sleep(event.amount)
            target.record_fault(self.name, event.kind, pid=front_end.pid, hurts=False)
        await expect_outcome(run, target)


async def expect_outcome(run: str, target: FaultTarget) -> None:
    """Record whether a run ends; its outcome is not checked, as other faults may have affected it."""

    async def ready() -> Path:
        return target.socket

    connection = ReconnectingClient(ready)
    wrong = f"the front end of run {run} died, and the run has no outcome {_OUTCOME_SECONDS:g} s later"
    with trio.move_on_after(_OUTCOME_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            wrong = await _query_outcome(connection, run)
            nursery.cancel_scope.cancel()
    if wrong:
        target.journal.record_violation(wrong)
    else:
        target.journal.record(OrphanedRunEnded(t=target.journal.now(), run=run))


async def _query_outcome(connection: ReconnectingClient, run: str) -> str:
    """The problem with the answer; empty = none."""
    while True:
        try:
            answer = await connection.request("agent.wait", {"run_id": run, "session": run})
        except PoolError as exc:
            if exc.details.get("code") == UsageError.code:
                return f"the front end of run {run} died, and the run is unknown: {exc}"
            await trio.sleep(_PAUSE)  # the supervisor is just ending; the next one has to know
            continue
        if answer["status"] != "timeout":  # it was asked for with a patience of its own
            return ""
