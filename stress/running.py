"""One run from beginning to end: a supervisor, the load, the faults, the witness, and everybody's facts to the judges."""

import contextlib
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from errors import PoolError
from stress.checker import Checker, Rules
from stress.driver import Driver
from stress.facts import Emptied, Fact
from stress.faults import Fault, faults_of
from stress.faults.port import Preparation, Stroke
from stress.ledger import Ledger
from stress.loads import Arrival, arrivals, mixed_with_wicked
from stress.meter import Meter
from stress.nonces import Nonces
from stress.outcome import Result
from stress.plan import Plan
from stress.pool_settings import BACKOFF_MAX, SPAWN_BURST, SPAWN_RATE, settings_text
from stress.processes import open_files, resident_bytes
from stress.target import OwnTarget
from stress.transcripts import read_transcripts
from stress.witness import Witness

__all__ = ["Recorder", "machine_facts", "rules_of", "run_stress"]

_LEAST_TO_COMPARE = 16
_DRAIN_SECONDS = 40.0
_OVERLOADS = {"L2": frozenset({"acquire_timeout", "request_timeout"})}


class Recorder:
    """Where every fact goes: to the judges, to the figures, and to whoever shows them."""

    def __init__(self, plan: Plan, rules: Rules) -> None:
        self.checker = Checker(rules)
        self.meter = Meter(plan.calm)
        self.listeners: list[Callable[[Fact], None]] = []
        self._began = time.monotonic()

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def tell(self, fact: Fact) -> None:
        """Take the next fact."""
        self.checker.see(fact)
        self.meter.see(fact)
        for listener in self.listeners:
            listener(fact)


def rules_of(plan: Plan, faults: list[Fault]) -> Rules:
    """What the pool has promised for this plan. Pure."""
    explained = [fault.explains for fault in faults]
    return Rules(
        max_workers=plan.workers,
        spawn_burst=SPAWN_BURST,
        spawn_rate=SPAWN_RATE,
        backoff_max=BACKOFF_MAX,
        explains=frozenset[str]().union(*explained, _OVERLOADS.get(plan.load, frozenset())),
        calm=plan.calm,
        compares=plan.workers >= _LEAST_TO_COMPARE and plan.load in ("L1", "L5"),
        rss_growth=1.25 if plan.load == "L5" else 0.0,
    )


def choices_of(plan: Plan, preparations: list[Preparation]) -> Iterator[Arrival]:
    """All requests of a plan, those to workers that misbehave among them. Pure."""
    found = arrivals(plan, _rng(plan.seed, "load"))
    for number, preparation in enumerate(preparations):
        found = mixed_with_wicked(found, preparation, _rng(plan.seed, f"wicked {number}"), plan.workers)
    return found


def strokes_of(plan: Plan, faults: list[Fault]) -> list[tuple[Fault, Stroke]]:
    """Everything that will be done to the pool, in order of time. Pure."""
    strokes = [(fault, stroke) for fault in faults for stroke in fault.schedule(plan, _rng(plan.seed, fault.name))]
    return sorted(strokes, key=lambda each: each[1].at)


def machine_facts() -> dict[str, str | int | float]:
    """What the figures depend on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


async def run_stress(plan: Plan, *, show: Callable[[Recorder], None] = lambda _recorder: None) -> Result:
    """Drive a supervisor of our own. ``show`` is given the recorder before anything begins.

    Raises PoolError when the supervisor does not start.
    """
    faults = faults_of(plan.faults)
    preparations = [fault.prepare(plan) for fault in faults]
    recorder = Recorder(plan, rules_of(plan, faults))
    show(recorder)
    began_at = time.time()
    with _folder() as folder:
        run = _Run(plan, faults, preparations, recorder, folder)
        await run.go()
        recorder.meter.finish()
        result = _result(plan, recorder, began_at)
    return result


class _Run:
    """What belongs to one run."""

    def __init__(
        self, plan: Plan, faults: list[Fault], preparations: list[Preparation], recorder: Recorder, folder: Path
    ) -> None:
        self._plan = plan
        self._faults = faults
        self._preparations = preparations
        self._recorder = recorder
        self._nonces = Nonces(plan.seed)
        self._sessions: dict[int, str] = {}
        self._ledger = Ledger(self._nonces, recorder.tell, prefix=f"stress-{os.urandom(4).hex()}")
        self._target = OwnTarget(
            folder, settings_text(plan, preparations), preparations, clock=recorder.clock, tell=recorder.tell
        )
        self._driver = Driver(plan, self._ledger, ready=self._target.ready, clock=recorder.clock, tell=recorder.tell)
        self._witness = Witness(
            self._driver.asking,
            household=lambda: self._target.household,
            life=lambda: self._target.life,
            clock=recorder.clock,
            tell=recorder.tell,
        )
        recorder.listeners.append(self._driver.notice)

    async def go(self) -> None:
        """All of it; returns when the supervisor has ended and what it has left was counted."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._target.run)
            fds = open_files(self._target.supervisor or 0)
            async with self._connected():
                async with trio.open_nursery() as under_load:
                    under_load.start_soon(self._witness.watch_processes)
                    under_load.start_soon(self._witness.watch_status)
                    under_load.start_soon(self._witness.watch_ourselves)
                    under_load.start_soon(self._inject_all)
                    await self._driver.run(self._all_arrivals())
                    under_load.cancel_scope.cancel()
                owners = await self._owners()
                await self._empty(fds)
            await self._target.stop(signal.SIGTERM)
            await self._read_transcripts(owners)
            nursery.cancel_scope.cancel()

    def _all_arrivals(self) -> Iterator[Arrival]:
        for arrival in choices_of(self._plan, self._preparations):
            self._sessions[arrival.number] = arrival.session
            yield arrival

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None, None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._driver.asking.run)
            nursery.start_soon(self._driver.hearing.run)
            await self._driver.hears()
            yield
            nursery.cancel_scope.cancel()

    async def _inject_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for fault, stroke in strokes_of(self._plan, self._faults):
                await trio.sleep(max(0.0, stroke.at - self._recorder.clock()))
                nursery.start_soon(fault.inject, stroke, self._target)

    async def _owners(self) -> dict[str, str]:
        views = await self._driver.asking.ask("sessions.list")
        return {view["transcript"]: view["key"] for view in views if view.get("transcript")}

    async def _empty(self, fds_before: int) -> None:
        """Drain the pool and see what the supervisor still has."""
        with trio.move_on_after(_DRAIN_SECONDS):
            with contextlib.suppress(PoolError):  # what is left is told below
                await self._driver.asking.ask("drain", {"timeout": _DRAIN_SECONDS / 2})
        household = self._target.household
        if household is None:
            return
        look = household.look()
        self._recorder.tell(
            Emptied(
                t=self._recorder.clock(),
                fds=open_files(household.supervisor),
                fds_before=fds_before,
                workers=len(look.workers),
                zombies=len(look.zombies),
                rss=resident_bytes(household.supervisor),
            )
        )

    async def _read_transcripts(self, owners: dict[str, str]) -> None:
        folder = self._target.data_dir / "sessions"
        now = self._recorder.clock()
        facts = await trio.to_thread.run_sync(
            lambda: list(read_transcripts(folder, owners, self._sessions, self._nonces, now))
        )
        for fact in facts:
            self._recorder.tell(fact)


def _result(plan: Plan, recorder: Recorder, began_at: float) -> Result:
    meter, checker = recorder.meter, recorder.checker
    return Result(
        plan=plan,
        machine=machine_facts(),
        began_at=began_at,
        seconds=recorder.clock(),
        lives=meter.lives,
        fates=dict(meter.fates),
        latencies=meter.latencies,
        calm_latencies=meter.calm_latencies,
        faults=tuple(meter.faults),
        verdicts=checker.verdicts(),
        violations=tuple(checker.violations),
        series=tuple(meter.series),
    )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pool-stress-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rng(seed: int, what: str) -> Random:
    """A source of choices of its own for each part, so that one part's choices do not change another's."""
    return Random(f"{seed}/{what}")  # noqa: S311 - choices that can be repeated are the point
