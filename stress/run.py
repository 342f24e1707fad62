"""One run from beginning to end: supervisor, load, faults, sampler, and what is left at the end."""

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
from stress.arrivals import Arrival
from stress.attached_target import AttachedTarget, fetch_limits
from stress.connection import ReconnectingClient
from stress.driver import LoadDriver, SimulatedFrontEnds
from stress.facts import PoolDrained
from stress.faults import Fault, faults_of
from stress.faults.base import FaultSetup
from stress.outcome import StressResult
from stress.own_target import OwnTarget
from stress.plan import StressOptions, make_plan
from stress.recorder import RunRecorder
from stress.request_tracker import Nonces, RequestTracker, read_transcripts
from stress.sampler import ANSWER_SECONDS, SupervisorSampler, open_files, resident_bytes
from stress.schedule import (
    WORKER_BYTES,
    all_arrivals,
    all_fault_events,
    check_rules,
    own_limits,
    rng_of,
    settings_text,
)

_DRAIN_SECONDS = 40.0
_LAST_SECONDS = 5.0
"""Seconds for each further request to a supervisor that has not answered one, and for its end."""
Show = Callable[[RunRecorder], None]


async def drive_own(
    wish: StressOptions, *, show: Show = lambda _recorder: None, settings: str | None = None
) -> StressResult:
    """Start a supervisor, drive it, end it. ``show`` gets the recorder before anything begins.

    ``settings``: text of a settings file in place of the plan's own. The folder is kept if a promise was broken. Raises
    PoolError if the supervisor does not start; UsageError for more workers than this machine's memory holds.
    """
    plan = make_plan(wish)
    if plan.workers > (fit := psutil.virtual_memory().total // WORKER_BYTES):
        raise UsageError(f"--workers {plan.workers} are too many for this machine's memory; it holds {fit}")
    faults = faults_of(plan.faults)
    preparations = [fault.prepare(plan) for fault in faults]
    recorder = RunRecorder(plan, check_rules(plan, faults, own_limits(plan)))
    show(recorder)
    folder = Path(tempfile.mkdtemp(prefix="pool-stress-"))
    log = ""
    try:
        text = settings_text(plan, preparations) if settings is None else settings
        target = OwnTarget(folder, text, preparations, recorder)
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            await _StressRun(recorder, faults, preparations, target).run_and_stop(target)
            nursery.cancel_scope.cancel()
        recorder.finish()
        log = str(target.log) if recorder.checker.broken else ""
    finally:
        if not log:
            shutil.rmtree(folder, ignore_errors=True)
    return recorder.result(log=log)


async def drive_attached(wish: StressOptions, socket: Path, *, show: Show = lambda _recorder: None) -> StressResult:
    """Drive the supervisor that listens on ``socket``, with one profile: its default agent's default role.

    Raises UsageError for a fault that would end it, or that needs settings of its own; NoSupervisor if there is none,
    or it ends before the run does; RequestTimeout if it is stopped.
    """
    if wish.workers is not None:
        raise UsageError("--workers cannot be used with --attach; that supervisor has its own pool.max")
    if wish.agents != "native":
        raise UsageError("--agents cannot be used with --attach; that supervisor has its own agents")
    limits = await fetch_limits(socket)
    plan = make_plan(msgspec.structs.replace(wish, workers=limits.max))
    plan = msgspec.structs.replace(plan, roles=("default",), attached_to=str(socket))
    faults = faults_of(plan.faults)
    preparations = [fault.prepare(plan) for fault in faults]
    if any(preparation != FaultSetup() for preparation in preparations):
        raise UsageError(f"{','.join(plan.faults)} cannot be used with --attach; they need a supervisor of their own")
    recorder = RunRecorder(plan, check_rules(plan, faults, limits))
    show(recorder)
    target = AttachedTarget(socket, recorder)
    await _StressRun(recorder, faults, preparations, target).run(target.identify)
    recorder.finish()
    return recorder.result()


class _StressRun:
    """The parts of one run."""

    def __init__(
        self,
        recorder: RunRecorder,
        faults: Sequence[Fault],
        preparations: Sequence[FaultSetup],
        target: OwnTarget | AttachedTarget,
    ) -> None:
        self._recorder = recorder
        self._plan = recorder.plan
        self._faults = faults
        self._setups = preparations
        self._target = target
        self._token = f"stress-{os.urandom(4).hex()}"
        self._nonces = Nonces(recorder.plan.seed)
        self._sessions: dict[int, str] = {}
        self._injecting = trio.CancelScope()
        self._is_unresponsive = False
        self._tracker = RequestTracker(self._nonces, recorder, prefix=self._token)
        self._driver = LoadDriver(self._plan, self._tracker, ready=target.wait_ready, journal=recorder)
        self._sampler = SupervisorSampler(
            self._driver.request_client,
            process_tree=lambda: target.process_tree,
            life=lambda: target.life,
            journal=recorder,
        )
        self._front_ends = SimulatedFrontEnds(
            [self._session_key(f"s{number:05}") for number in range(self._plan.front_ends)],
            self._tracker,
            ready=target.wait_ready,
            journal=recorder,
            some_are_slow=self._plan.load == "L6",
        )
        recorder.listeners += [self._driver.on_fact, self._front_ends.on_fact]

    async def run(self, meet: Callable[[ReconnectingClient], Any]) -> None:
        """Load, faults, and checks of the transcripts. ``meet`` gets a connection before the first request."""
        self._recorder.begin()
        async with self._connected():
            await meet(self._driver.request_client)
            await self._under_load()
            owners = await self._transcript_owners()
            await self._read_transcripts(owners, None)

    async def run_and_stop(self, target: OwnTarget) -> None:
        """The same, then drain the pool, end the supervisor and count what is left."""
        self._recorder.begin()
        fds = open_files(target.supervisor or 0)
        async with self._connected():
            await self._under_load()
            owners = await self._transcript_owners()
            await self._drain(fds)
        await target.stop(signal.SIGTERM, self._answer_timeout)
        await self._read_transcripts(owners, target.data_dir / "sessions")

    async def _under_load(self) -> None:
        watching = (self._sampler.watch_processes, self._sampler.watch_status, self._sampler.watch_delays)
        async with trio.open_nursery() as nursery:
            for watch in (*watching, self._inject_all, self._run_front_ends):
                nursery.start_soon(watch)
            await self._driver.run(self._all_arrivals(), self._front_ends.client_for)
            await self._front_ends.settle()
            await self._settle_faults()
            nursery.cancel_scope.cancel()

    def _session_key(self, session: str) -> str:
        """A session key of this run alone: an attached supervisor knows those of earlier runs.

        A million requests share some thousand sessions: each key is interned.
        """
        return sys.intern(f"{self._token}-{session}")

    def _all_arrivals(self) -> Iterator[Arrival]:
        for arrival in all_arrivals(self._plan, self._setups):
            session = self._sessions[arrival.number] = self._session_key(arrival.session)
            yield msgspec.structs.replace(arrival, session=session)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None, None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._driver.request_client.run)
            nursery.start_soon(self._driver.event_client.run)
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                await self._driver.wait_subscribed()
            if scope.cancelled_caught:
                raise RequestTimeout(f"the supervisor did not answer subscribe in {ANSWER_SECONDS:g} s")
            yield
            nursery.cancel_scope.cancel()

    async def _run_front_ends(self) -> None:
        await self._front_ends.run(rng_of(self._plan.seed, "front ends"), come_and_go=self._plan.load == "L4")

    async def _inject_all(self) -> None:
        async with trio.open_nursery() as nursery:
            with self._injecting:
                for fault, event in all_fault_events(self._plan, self._faults):
                    await trio.sleep(max(0.0, event.at - self._recorder.clock()))
                    nursery.start_soon(fault.inject, event, self._target)

    async def _settle_faults(self) -> None:
        """Inject no more; consequences of the last faults may be known later than the outcomes of the load."""
        self._injecting.cancel()
        for fault in self._faults:
            await fault.settle()

    async def _request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Call a method at the end, when the supervisor may have ended. Raises PoolError."""
        patience = self._answer_timeout
        with trio.move_on_after(patience):
            return await self._driver.request_client.request(method, params)
        self._is_unresponsive = True
        raise RequestTimeout(f"the supervisor did not answer {method} in {patience:g} s")

    @property
    def _answer_timeout(self) -> float:
        """Seconds to wait for each answer at the end."""
        return min(ANSWER_SECONDS, _LAST_SECONDS) if self._is_unresponsive else ANSWER_SECONDS

    async def _transcript_owners(self) -> dict[str, str] | None:
        """The session of each transcript; None = the supervisor does not answer, which is a violation."""
        try:
            views = await self._request("sessions.list")
        except PoolError as exc:
            self._recorder.record_violation(str(exc))
            return None
        mine = (view for view in views if view["key"].startswith(self._token))
        return {view["transcript"]: view["key"] for view in mine if view.get("transcript")}

    async def _drain(self, fds_before: int | None) -> None:
        """Drain the pool and count what the supervisor still has."""
        try:
            await self._request("drain", {"timeout": _DRAIN_SECONDS})
        except RequestTimeout as exc:
            self._recorder.record_violation(str(exc))
            return
        except PoolError:
            pass  # workers that are left are counted below
        process_tree = self._target.process_tree
        if process_tree is None:
            return
        look = process_tree.scan()
        self._recorder.record(
            PoolDrained(
                t=self._recorder.clock(),
                fds=open_files(process_tree.supervisor),
                fds_before=fds_before,
                workers=len(look.workers),
                zombies=len(look.zombies),
                rss=resident_bytes(process_tree.supervisor),
            )
        )

    async def _read_transcripts(self, owners: dict[str, str] | None, folder: Path | None) -> None:
        if owners is None:
            return
        now = self._recorder.clock()
        for fact in await trio.to_thread.run_sync(
            lambda: list(read_transcripts(folder, owners, self._sessions, self._nonces, now))
        ):
            self._recorder.record(fact)
