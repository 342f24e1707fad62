"""One run from beginning to end: a supervisor, the load, the faults, the witness, and what is left of it all."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import trio

from errors import PoolError, RequestTimeout, UsageError
from stress.attached import AttachedTarget, Limits, ask_limits
from stress.connection import Connection
from stress.driver import Driver, FrontEnds
from stress.facts import Disordered, Emptied
from stress.faults import Fault, faults_of
from stress.faults.base import Preparation, Settling
from stress.loads import Arrival
from stress.outcome import Result
from stress.plan import Wish, make_plan
from stress.recorder import Recorder
from stress.requests import Ledger, Nonces
from stress.sampler import ANSWER_SECONDS, Witness, open_files, resident_bytes
from stress.schedule import (
    AGE_STEP,
    BACKOFF_MAX,
    SPAWN_BURST,
    SPAWN_RATE,
    WORKER_BYTES,
    all_arrivals,
    all_strokes,
    rng_of,
    rules_of,
    settings_text,
)
from stress.target import OwnTarget
from stress.transcripts import read_transcripts

_DRAIN_SECONDS = 40.0
_LAST_SECONDS = 5.0
"""What one that has not answered by then is given for each further question, and its end."""
Show = Callable[[Recorder], None]


async def drive_own(wish: Wish, *, show: Show = lambda _recorder: None, settings: str | None = None) -> Result:
    """Start a supervisor, drive it, end it. ``show`` is given the recorder before anything begins.

    ``settings``: the text of another settings file than the plan's own. The folder is left where a promise was broken,
    and nothing of one that is cancelled. Raises PoolError when the supervisor does not start; UsageError
    for more workers than this machine's memory holds.
    """
    plan = make_plan(wish)
    if plan.workers > (fit := psutil.virtual_memory().total // WORKER_BYTES):
        raise UsageError(f"--workers {plan.workers} are too many for this machine's memory; it holds {fit}")
    faults = faults_of(plan.faults)
    preparations = [fault.prepare(plan) for fault in faults]
    limits = Limits(
        max=plan.workers,
        spawn_burst=SPAWN_BURST,
        spawn_rate=SPAWN_RATE,
        backoff_max=BACKOFF_MAX,
        age_step=AGE_STEP,
    )
    recorder = Recorder(plan, rules_of(plan, faults, limits))
    show(recorder)
    folder = Path(tempfile.mkdtemp(prefix="pool-stress-"))
    log = ""
    try:
        text = settings_text(plan, preparations) if settings is None else settings
        target = OwnTarget(folder, text, preparations, clock=recorder.clock, tell=recorder.tell)
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            await _Run(recorder, faults, preparations, target).go_and_end(target)
            nursery.cancel_scope.cancel()
        recorder.finish()
        log = str(target.log) if recorder.checker.broken else ""
    finally:
        if not log:
            shutil.rmtree(folder, ignore_errors=True)
    return recorder.result(log=log)


async def drive_attached(wish: Wish, socket: Path, *, show: Show = lambda _recorder: None) -> Result:
    """Drive the supervisor that listens on ``socket``, with one profile: its default agent's default role.

    Raises UsageError for a fault that would end it, or that needs settings of its own; NoSupervisor where there is
    none, or it ends before the run does; RequestTimeout where it is stopped.
    """
    if wish.workers is not None:
        raise UsageError("--workers is for a supervisor of our own; one that runs already has its own pool.max")
    limits = await ask_limits(socket)
    plan = make_plan(msgspec.structs.replace(wish, workers=limits.max))
    plan = msgspec.structs.replace(plan, roles=("default",), attached_to=str(socket))
    faults = faults_of(plan.faults)
    preparations = [fault.prepare(plan) for fault in faults]
    if any(preparation != Preparation() for preparation in preparations):
        raise UsageError(f"{','.join(plan.faults)} need a supervisor of our own; leave --attach out")
    recorder = Recorder(plan, rules_of(plan, faults, limits))
    show(recorder)
    target = AttachedTarget(socket, clock=recorder.clock, tell=recorder.tell)
    await _Run(recorder, faults, preparations, target).go(target.meet)
    recorder.finish()
    return recorder.result()


class _Run:
    """What belongs to one run."""

    def __init__(
        self,
        recorder: Recorder,
        faults: Sequence[Fault],
        preparations: Sequence[Preparation],
        target: OwnTarget | AttachedTarget,
    ) -> None:
        self._recorder = recorder
        self._plan = recorder.plan
        self._faults = faults
        self._preparations = preparations
        self._target = target
        self._token = f"stress-{os.urandom(4).hex()}"
        self._nonces = Nonces(recorder.plan.seed)
        self._sessions: dict[int, str] = {}
        self._striking = trio.CancelScope()
        self._is_in_vain = False
        self._ledger = Ledger(self._nonces, recorder.tell, prefix=self._token)
        self._driver = Driver(self._plan, self._ledger, ready=target.ready, clock=recorder.clock, tell=recorder.tell)
        self._witness = Witness(
            self._driver.asking,
            household=lambda: target.household,
            life=lambda: target.life,
            clock=recorder.clock,
            tell=recorder.tell,
        )
        self._front_ends = FrontEnds(
            [self._named(f"s{number:05}") for number in range(self._plan.front_ends)],
            self._ledger,
            ready=target.ready,
            clock=recorder.clock,
            tell=recorder.tell,
            some_are_slow=self._plan.load == "L6",
        )
        recorder.listeners += [self._driver.notice, self._front_ends.notice]

    async def go(self, meet: Callable[[Connection], Any]) -> None:
        """Load, faults, and what the transcripts say. ``meet`` is given a connection before anything is asked."""
        self._recorder.begin()
        async with self._connected():
            await meet(self._driver.asking)
            await self._under_load()
            owners = await self._owners()
            await self._read_transcripts(owners, None)

    async def go_and_end(self, target: OwnTarget) -> None:
        """The same, then drain the pool and end the supervisor, and count what is left."""
        self._recorder.begin()
        fds = open_files(target.supervisor or 0)
        async with self._connected():
            await self._under_load()
            owners = await self._owners()
            await self._empty(fds)
        await target.stop(signal.SIGTERM, self._patience)
        await self._read_transcripts(owners, target.data_dir / "sessions")

    async def _under_load(self) -> None:
        watching = (self._witness.watch_processes, self._witness.watch_status, self._witness.watch_delays)
        async with trio.open_nursery() as nursery:
            for watch in (*watching, self._inject_all, self._run_front_ends):
                nursery.start_soon(watch)
            await self._driver.run(self._all_arrivals(), self._front_ends.asker)
            await self._front_ends.settle()
            await self._settle_faults()
            nursery.cancel_scope.cancel()

    def _named(self, session: str) -> str:
        """Sessions of one run are nobody else's, also where the supervisor knows those of earlier runs.

        A million requests have the names of some thousand sessions: each is kept once.
        """
        return sys.intern(f"{self._token}-{session}")

    def _all_arrivals(self) -> Iterator[Arrival]:
        for arrival in all_arrivals(self._plan, self._preparations):
            session = self._sessions[arrival.number] = self._named(arrival.session)
            yield msgspec.structs.replace(arrival, session=session)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None, None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._driver.asking.run)
            nursery.start_soon(self._driver.hearing.run)
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                await self._driver.hears()
            if scope.cancelled_caught:
                raise RequestTimeout(f"the supervisor did not answer subscribe in {ANSWER_SECONDS:g} s")
            yield
            nursery.cancel_scope.cancel()

    async def _run_front_ends(self) -> None:
        await self._front_ends.run(rng_of(self._plan.seed, "front ends"), come_and_go=self._plan.load == "L4")

    async def _inject_all(self) -> None:
        async with trio.open_nursery() as nursery:
            with self._striking:
                for fault, stroke in all_strokes(self._plan, self._faults):
                    await trio.sleep(max(0.0, stroke.at - self._recorder.clock()))
                    nursery.start_soon(fault.inject, stroke, self._target)

    async def _settle_faults(self) -> None:
        """No more strokes; what came of the last ones may be known later than what came of the load."""
        self._striking.cancel()
        for fault in self._faults:
            if isinstance(fault, Settling):
                await fault.settle()

    async def _ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask something at the end, when the supervisor may long be gone. Raises PoolError."""
        patience = self._patience
        with trio.move_on_after(patience):
            return await self._driver.asking.ask(method, params)
        self._is_in_vain = True
        raise RequestTimeout(f"the supervisor did not answer {method} in {patience:g} s")

    @property
    def _patience(self) -> float:
        """How long each answer at the end is waited for."""
        return min(ANSWER_SECONDS, _LAST_SECONDS) if self._is_in_vain else ANSWER_SECONDS

    async def _owners(self) -> dict[str, str] | None:
        """The session of each transcript; None = the supervisor does not say, for which it is blamed."""
        try:
            views = await self._ask("sessions.list")
        except PoolError as exc:
            self._recorder.tell(Disordered(t=self._recorder.clock(), what=str(exc)))
            return None
        mine = (view for view in views if view["key"].startswith(self._token))
        return {view["transcript"]: view["key"] for view in mine if view.get("transcript")}

    async def _empty(self, fds_before: int | None) -> None:
        """Drain the pool and see what the supervisor still has."""
        try:
            await self._ask("drain", {"timeout": _DRAIN_SECONDS})
        except RequestTimeout as exc:
            self._recorder.tell(Disordered(t=self._recorder.clock(), what=str(exc)))
            return
        except PoolError:
            pass  # what was not drained is seen below
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

    async def _read_transcripts(self, owners: dict[str, str] | None, folder: Path | None) -> None:
        if owners is None:
            return
        now = self._recorder.clock()
        for fact in await trio.to_thread.run_sync(
            lambda: list(read_transcripts(folder, owners, self._sessions, self._nonces, now))
        ):
            self._recorder.tell(fact)
