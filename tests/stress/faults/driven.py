"""A real supervisor that faults are injected into, a front end that asks it, and everything that was seen of it."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import trio

from errors import PoolError, WorkerStalled
from stress.checker.base import ObservedState
from stress.checker.supervisor import NoLeftovers
from stress.connection import ReconnectingClient
from stress.facts import Fact, FaultInjected, LeftoverProcesses, SupervisorStarted
from stress.faults import Fault, FaultEvent, FaultSetup, faults_of
from stress.plan import Plan, StressOptions, make_plan
from stress.schedule import settings_text
from stress.target import OwnTarget
from tests.stress.story import RULES

_LIMIT = 170.0
"""Above every limit of the faults and of the target, which say what has gone wrong."""
_ENDING = ("shutting down", "closed")
"""What a supervisor says that will not be there much longer."""
_PATIENCE = 120.0
_BUSY_SESSIONS = 3
_PINGS = ("ping_interval_busy", "ping_interval_idle", "ping_timeout")
_QUICK = FaultSetup(settings={"pool": dict.fromkeys(_PINGS, 1.5)})
"""Whoever says nothing is found out soon."""
_PATIENT = FaultSetup(settings={"pool": dict.fromkeys(_PINGS, _PATIENCE)})
"""Nobody is taken for dead whom the machine holds up."""
_FAULTY = ("F2", "F3")
"""Of their workers some say nothing any more."""


def plan_of(*faults: str, seed: int = 7, seconds: float = 600.0, **wish: Any) -> Plan:
    """A run of ten minutes on four workers."""
    return make_plan(StressOptions(workers=4, sessions=8, seconds=seconds, faults=faults, seed=seed, **wish))


def strokes_of(name: str, **wish: Any) -> list[FaultEvent]:
    """All that a fault is going to do."""
    plan = plan_of(name, **wish)
    (fault,) = faults_of(plan.faults)
    return list(fault.schedule(plan, Random(plan.seed)))


class Driven:
    """``facts``: what the faults and the target have told."""

    def __init__(self, target: OwnTarget, connection: ReconnectingClient, fault: Fault, facts: list[Fact]) -> None:
        self.target = target
        self.facts = facts
        self.fault = fault
        self.next_life = trio.Event()
        self._connection = connection
        self._last = 0

    async def outcome(self, text: str, *, session: str = "s", agent: str = "main") -> dict[str, Any]:
        """Ask, and wait for what comes of it, whatever happens to the supervisor meanwhile."""
        self._last += 1
        run = f"r{self._last}"
        ask = {"run": run, "text": text, "session": session, "agent": agent, "role": "default", "timeout": _PATIENCE}
        while True:
            try:
                await self._connection.request("agent", ask)
                wait = {"run_id": run, "session": session, "timeout_ms": int(1000 * _PATIENCE)}
                return dict(await self._connection.request("agent.wait", wait))
            except PoolError as exc:
                if not any(word in exc.message for word in _ENDING):
                    raise
                await self.next_life.wait()

    async def fair_outcome(self, text: str, *, session: str = "s", agent: str = "main") -> dict[str, Any]:
        """The same, but asked again where the machine held the worker up until it was taken for dead."""
        while True:
            outcome = await self.outcome(text, session=session, agent=agent)
            if outcome["status"] == "ok" or outcome["error"]["code"] != WorkerStalled.code:
                return outcome

    async def answer(self, text: str, *, session: str = "s", agent: str = "main") -> str:
        """The text of the answer, which there must be."""
        outcome = await self.fair_outcome(text, session=session, agent=agent)
        assert outcome["status"] == "ok", outcome
        return str(outcome["text"])

    async def sessions(self) -> list[str]:
        """Their names."""
        return [session["key"] for session in await self._connection.request("sessions.list")]

    async def strike(self, kind: str, *, amount: float, pick: float = 0.0) -> None:
        """One stroke of the fault while there is work."""
        async with trio.open_nursery() as nursery:
            for number in range(_BUSY_SESSIONS):
                nursery.start_soon(self._be_busy, f"busy{number}")
            await self.fault.inject(FaultEvent(at=0.0, kind=kind, pick=pick, amount=amount), self.target)
            nursery.cancel_scope.cancel()

    def told(self, kind: type[Fact]) -> list[Any]:
        """The facts of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def actions(self) -> list[str]:
        """What was injected."""
        return [fact.action for fact in self.told(FaultInjected)]

    async def _be_busy(self, session: str) -> None:
        while True:
            await self.outcome("DELAY=100 busy", session=session)


@asynccontextmanager
async def driven_pool(folder: Path, name: str) -> AsyncIterator[Driven]:
    """One fault's supervisor. It must end in good order, and leave nothing behind."""
    facts: list[Fact] = []
    counted = trio.Event()

    def tell(fact: Fact) -> None:
        facts.append(fact)
        if isinstance(fact, LeftoverProcesses) and fact.life == target.life:
            counted.set()
        elif isinstance(fact, SupervisorStarted):
            driven.next_life.set()
            driven.next_life = trio.Event()

    plan = plan_of(name)
    (fault,) = faults_of(plan.faults)
    preparations = [fault.prepare(plan), _QUICK if name in _FAULTY else _PATIENT]
    settings = settings_text(plan, preparations)
    target = OwnTarget(folder, settings, preparations, clock=trio.current_time, tell=tell)
    with trio.fail_after(_LIMIT):
        async with trio.open_nursery() as nursery:
            connection = ReconnectingClient(target.wait_ready)
            driven = Driven(target, connection, fault, facts)
            await nursery.start(target.run)
            nursery.start_soon(connection.run)
            yield driven
            await target.stop(signal.SIGTERM)
            await counted.wait()
            nursery.cancel_scope.cancel()
    judge = NoLeftovers(RULES)
    assert [blame.what for fact in facts for blame in judge.check(fact, ObservedState())] == [], target.log_tail()
