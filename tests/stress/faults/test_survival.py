"""The pool survives each kind of fault: what is asked afterwards is answered, and nothing of the fault is left."""

import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import PoolError
from stress.checker.base import ObservedState
from stress.checker.supervisor import NoLeftovers
from stress.connection import ReconnectingClient
from stress.facts import (
    DirectViolation,
    Fact,
    FaultInjected,
    Journal,
    LeftoverProcesses,
    OrphanedRunEnded,
    ReusedPid,
    SupervisorEnded,
    SupervisorStarted,
)
from stress.fault_switches import FaultSwitches
from stress.faults import FaultEvent, FaultSetup, faults_of
from stress.faults.peers import FrontEndKills, expect_outcome
from stress.faulty_agent import fault_word
from stress.helper_programs import unavailable_reason
from stress.own_target import OwnTarget
from stress.plan import StressOptions, make_plan
from stress.schedule import settings_text
from tests.stress.story import RULES

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

WORDS = ("garbage", "half-line-exit", "endless-line", *("close-stdin", "close-stdout", "no-end", "heir", "daemon"))
"""One of each kind; what the others are made of is tested beside what reads them."""
NO_ANSWER = ("half-line-exit", "endless-line", "close-stdout")
SHORTAGES = {"no_files": "no file descriptor left", "no_processes": "limit of processes", "no_disk": "store_degraded"}
"""How the supervisor complains of each."""
_PATIENCE = 120.0
_PATIENT = FaultSetup(
    settings={
        "pool": dict.fromkeys(("ping_interval_busy", "ping_interval_idle", "ping_timeout"), _PATIENCE),
        "rpc": {"eof_grace": 0.3, "term_grace": 0.5},
    }
)
"""No worker is taken for dead that a busy machine holds up; one that refuses to end is killed soon."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path short enough for a socket."""
    with TemporaryDirectory() as name:
        yield Path(name)


class Driven:
    """A supervisor that faults are injected into, a front end that asks it, and the facts of both."""

    def __init__(self, folder: Path, *names: str) -> None:
        plan = make_plan(StressOptions(workers=4, sessions=8, seconds=600.0, faults=names))
        self.facts: list[Fact] = []
        self.faults = {fault.name: fault for fault in faults_of(plan.faults)}
        setups = [*(fault.prepare(plan) for fault in self.faults.values()), _PATIENT]
        self.target = OwnTarget(
            folder, settings_text(plan, setups), setups, journal=Journal(trio.current_time, self.facts.append)
        )
        self.connection = ReconnectingClient(self.target.wait_ready)
        self._last = 0

    async def outcome(self, text: str, *, session: str = "s", agent: str = "main") -> dict[str, Any]:
        """Ask, and wait for what comes of it, whatever happens to the supervisor meanwhile."""
        self._last += 1
        run = f"r{self._last}"
        ask = {"run": run, "text": text, "session": session, "agent": agent, "role": "default", "timeout": _PATIENCE}
        while True:
            try:
                await self.connection.request("agent", ask)
                wait = {"run_id": run, "session": session, "timeout_ms": int(1000 * _PATIENCE)}
                return dict(await self.connection.request("agent.wait", wait))
            except PoolError as exc:
                if not any(word in exc.message for word in ("shutting down", "closed")):
                    raise
                await wait_all_tasks_blocked(0.01)

    async def answer(self, text: str, *, session: str = "s", agent: str = "main") -> str:
        outcome = await self.outcome(text, session=session, agent=agent)
        assert outcome["status"] == "ok", repr(outcome)
        return str(outcome["text"])

    async def strike(self, name: str, kind: str, *, amount: float, pick: float = 0.0) -> None:
        """One stroke of a fault while there is work."""

        async def be_busy(session: str) -> None:
            while True:
                await self.outcome("DELAY=100 busy", session=session)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(be_busy, f"busy{number}")
            await self.inject(name, kind, amount=amount, pick=pick)
            nursery.cancel_scope.cancel()

    async def inject(self, name: str, kind: str, *, amount: float, pick: float = 0.0) -> None:
        await self.faults[name].inject(FaultEvent(at=0.0, kind=kind, pick=pick, amount=amount), self.target)

    def seen(self, kind: type[Fact]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def actions(self) -> list[str]:
        return [fact.action for fact in self.seen(FaultInjected)]


@asynccontextmanager
async def driven_pool(folder: Path, *names: str) -> AsyncIterator[Driven]:
    """A supervisor that must end in good order, and leave nothing behind."""
    driven = Driven(folder, *names)
    target = driven.target
    with trio.fail_after(170):  # above every limit of the faults and of the target, which say what has gone wrong
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            nursery.start_soon(driven.connection.run)
            yield driven
            await target.stop(signal.SIGTERM)
            while target.life not in {fact.life for fact in driven.seen(LeftoverProcesses)}:
                await wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
    judge = NoLeftovers(RULES)
    assert [blame.what for fact in driven.facts for blame in judge.check(fact, ObservedState())] == [], (
        target.log_tail()
    )


async def test_every_kind_of_faulty_worker_is_survived(folder: Path) -> None:
    """An answer where one can be had; afterwards another worker, or the same, knows the conversation."""

    async def check_fault(fault: str, driven: Driven) -> None:
        text = f"{fault_word(fault)} first"
        outcome = await driven.outcome(text, session=fault, agent="faulty")
        assert (outcome["status"] == "error") == (fault in NO_ANSWER), f"{fault}: {outcome}"
        if fault == "close-stdin":  # the next request is the one to find out
            await driven.outcome("second", session=fault, agent="faulty")
        names = [worker.name for worker in driven.target.workers()]
        assert len(names) == len(set(names)), "what a worker leaves behind was taken for one"
        assert text in await driven.answer("third", session=fault, agent="faulty")

    async with driven_pool(folder, "F2", "F3") as driven:
        async with trio.open_nursery() as nursery:
            for fault in WORDS:
                nursery.start_soon(check_fault, fault, driven)
        assert psutil.Process(driven.target.supervisor).memory_info().rss < 300 * 1024 * 1024


async def test_shortages_killed_front_ends_and_a_clock_that_moves_are_survived(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stress.faults.supervisor._NOTICE_SECONDS", 0.2)
    monkeypatch.setattr("stress.faults.supervisor.unavailable_reason", lambda: "it is too small")
    async with driven_pool(folder, "F4", "F6", "F7") as driven:
        assert await driven.answer("before")
        await check_shortages(driven)
        await check_front_ends(driven)
        await check_clock(driven)
        before = {worker.pid for worker in driven.target.workers()}
        await driven.inject("F7", "pid", amount=1.0)
        assert driven.actions[-1] == "pid: unavailable, it is too small"
        assert before <= {worker.pid for worker in driven.target.workers()}


async def check_shortages(driven: Driven) -> None:
    """Each is felt and passes, and the limits are as before."""
    for kind, complaint in SHORTAGES.items():
        if kind == "no_files" and os.geteuid() != 0:
            continue  # root alone may see what a supervisor has open
        while complaint not in driven.target.log.read_text():  # it may pass before a worker is started again
            await driven.strike("F4", kind, amount=0.7)
            assert driven.actions[-2:] == [kind, "kill"]
            assert "before" in await driven.answer(f"after {kind}")
    for pid in (driven.target.supervisor, *(worker.pid for worker in driven.target.workers())):
        assert pid is not None
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
            assert resource.prlimit(pid, limit) == resource.getrlimit(limit)
    assert not FaultSwitches.open(driven.target.data_dir).no_processes


async def check_front_ends(driven: Driven) -> None:
    for fault in (driven.faults["F6"], FrontEndKills()):  # of the same seed, and yet another run
        await fault.inject(FaultEvent(at=0.0, kind="kill_front_end", amount=0.1), driven.target)
    assert driven.actions[-2:] == ["kill_front_end"] * 2
    assert driven.seen(DirectViolation) == []
    assert len(driven.seen(OrphanedRunEnded)) == 2
    known = [session["key"] for session in await driven.connection.request("sessions.list")]
    run, _ = [key for key in known if key.startswith("lost-front-end")]
    assert run in await driven.answer("and then?", session=run)
    await expect_outcome("never-asked", driven.target)
    (fact,) = driven.seen(DirectViolation)
    assert "never-asked" in fact.what


async def check_clock(driven: Driven) -> None:
    async def hours_ahead() -> float:
        accepted_at: float = (await driven.outcome("now"))["accepted_at"]
        return round((accepted_at - time.time()) / 3600, 1)

    for kind, hours in (("clock_ahead", 1), ("clock_behind", -1)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(driven.inject, "F7", kind, amount=600.0))
            await wait_all_tasks_blocked()
            assert await hours_ahead() == hours
            nursery.cancel_scope.cancel()
        assert await hours_ahead() == 0


async def test_a_supervisor_ends_the_next_one_knows_everything_and_strangers_with_old_pids_are_let_alone(
    folder: Path,
) -> None:
    async with driven_pool(folder, "F5", "F7") as driven:
        assert await driven.answer("before")
        await driven.strike("F5", "end_twice_in_spawn", amount=0.1, pick=0.2)
        assert [end.code for end in driven.seen(SupervisorEnded)] == [-signal.SIGKILL, 0]
        assert len(driven.seen(SupervisorStarted)) == 3
        assert "before" in await driven.answer("after")
        if unavailable_reason():
            return
        before = {worker.pid for worker in driven.target.workers()}
        await driven.strike("F7", "pid", amount=0.3)
        await driven.strike("F7", "pids_of_a_life", amount=0.5)
        first, *others = driven.seen(ReusedPid)
        assert first.pid in before
        assert others
        assert [fact for fact in (first, *others) if fact.signalled] == []
        assert "before" in await driven.answer("after strangers")
