"""The gateway: sessions, runs, turns and their services, wired together; its recovery and its shutdown."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import UsageError
from gateway.events import EventBus
from gateway.front_ends.attachments import Attachments
from gateway.front_ends.session import FrontEndServices
from gateway.hooks import HookRunner
from gateway.runs.delegation import Delegation
from gateway.runs.intake import Intake
from gateway.runs.registry import RunRegistry
from gateway.runs.run import Run
from gateway.runs.trace import Tracer
from gateway.sessions.admin import SessionAdmin
from gateway.sessions.agent_profiles import AgentParts, ProfileCache
from gateway.sessions.openings import SessionOpenings
from gateway.sessions.sessions import Sessions
from gateway.sessions.slash_commands import SlashCommands
from gateway.sessions.system_events import SystemEvents
from gateway.settings import CurrentSettings, GatewaySettings
from gateway.turns.approvals import ApprovalDecisions, PendingPermissions
from gateway.turns.context import TurnContext
from gateway.turns.holds import Holds
from gateway.turns.scheduler import TurnScheduler
from gateway.turns.turn import Turn
from pool import Pool
from pool.stimuli import SessionAsks
from profiles import CapabilityProfile
from store.records import Loaded
from store.store import Store
from wire.messages import QueueMode

_MAX_LISTED = 10


_RESUME_BATCH = 50
"""Recovered runs that begin between two checkpoints: each takes a third of a millisecond."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier supervisor left: numbers of sessions and runs."""

    sessions: int
    resumed: int
    """Runs that were accepted and are run now."""
    interrupted: int
    """Runs that were in their turn and are reported as interrupted."""
    damaged: list[str]
    """Sessions whose own settings could not be read."""
    missing: list[str]
    """Sessions whose transcript is missing."""


class Gateway:
    """Made by ``open_gateway``. Its parts are its interface; the methods call them directly."""

    def __init__(
        self,
        settings: GatewaySettings,
        parts: AgentParts,
        *,
        pool: Pool,
        store: Store,
        bus: EventBus,
        hooks: HookRunner,
        data_dir: Path,
        nursery: trio.Nursery,
        clock: Callable[[], float] = time.time,
        tracer: Tracer | None = None,
    ) -> None:
        self.pool, self.store, self.bus = pool, store, bus
        self.shutdown_requested, self.resumed = trio.Event(), trio.Event()
        self._recovered: list[Run] = []
        self._settings = current = CurrentSettings(settings)
        self.pending_permissions = PendingPermissions(self._on_first_question)
        self.profile_cache = ProfileCache(parts, hooks, data_dir=data_dir, cwd_of=self._cwd_of)
        self.sessions = Sessions(
            current,
            store,
            bus,
            pool,
            hooks=hooks,
            start_soon=nursery.start_soon,
            data_dir=data_dir,
            is_busy=lambda session: self.scheduler.is_busy(session),  # noqa: PLW0108 - the scheduler is made later
            clock=clock,
        )
        self.run_registry = RunRegistry(current, store, bus, clock=clock, tracer=tracer)
        self.system_events = SystemEvents(store, bus, clock=clock)
        turn_context = TurnContext(
            current,
            pool=pool,
            store=store,
            bus=bus,
            hooks=hooks,
            run_registry=self.run_registry,
            sessions=self.sessions,
            profile_cache=self.profile_cache,
            pending_permissions=self.pending_permissions,
            system_events=self.system_events,
        )
        self.scheduler = TurnScheduler(current, self.run_registry, turn_context, nursery)
        self.decisions = ApprovalDecisions(self.pending_permissions, self.scheduler.lease_of)
        self._open_services(hooks, data_dir, nursery.start_soon)

    def _open_services(self, hooks: HookRunner, data_dir: Path, start_soon: Callable[..., None]) -> None:
        """The parts that begin runs, and those that look after sessions."""
        pool = self.pool
        self.session_admin = SessionAdmin(
            pool=pool,
            bus=self.bus,
            sessions=self.sessions,
            scheduler=self.scheduler,
            profile_cache=self.profile_cache,
            permissions=self.pending_permissions,
            system_events=self.system_events,
            hooks=hooks,
            data_dir=data_dir,
            start_soon=start_soon,
        )
        self.intake = Intake(
            self._settings,
            run_registry=self.run_registry,
            sessions=self.sessions,
            profile_cache=self.profile_cache,
            scheduler=self.scheduler,
            hooks=hooks,
            commands=SlashCommands(self.sessions, self.session_admin),
            data_dir=data_dir,
            start_soon=start_soon,
        )
        self._open_front_ends(data_dir, start_soon)
        self.delegation = Delegation(
            self._settings,
            pool=pool,
            intake=self.intake,
            scheduler=self.scheduler,
            bus=self.bus,
            sessions=self.sessions,
            session_admin=self.session_admin,
            system_events=self.system_events,
            start_soon=start_soon,
        )

    def _open_front_ends(self, data_dir: Path, start_soon: Callable[..., None]) -> None:
        """What gives front ends sessions and workers."""
        pool = self.pool
        self.openings = SessionOpenings(
            sessions=self.sessions,
            profile_cache=self.profile_cache,
            pool=pool,
            store=self.store,
            bus=self.bus,
            permissions=self.pending_permissions,
            is_busy=self.scheduler.is_busy,
            data_dir=data_dir,
        )
        self.holds = Holds(
            pool=pool, scheduler=self.scheduler, sessions=self.sessions, profile_cache=self.profile_cache
        )
        services = FrontEndServices(
            pool=pool,
            sessions=self.sessions,
            session_admin=self.session_admin,
            profile_cache=self.profile_cache,
            scheduler=self.scheduler,
            intake=self.intake,
        )
        self.attachments = Attachments(services, data_dir, start_soon)

    def _on_first_question(self, session: str, call: str | None) -> None:
        self.pool.submit(SessionAsks(session, call))

    def shut_down(self) -> None:
        """Request the shutdown: nothing new is accepted from here on."""
        self.intake.is_closed = True
        self.scheduler.close()
        self.holds.close()
        self.attachments.drain_owners()
        self.shutdown_requested.set()

    def shutdown_blockers(self) -> list[str]:
        """One sentence for each running turn, and for each session where a front end awaits an answer."""
        lines = [self._describe_turn(turn) for turn in self.scheduler.turns if turn.worker is not None]
        lines += [f"session {session}: a request of a front end" for session in self.attachments.unanswered_sessions()]
        return lines if len(lines) <= _MAX_LISTED else [*lines[:_MAX_LISTED], f"and {len(lines) - _MAX_LISTED} more"]

    def _describe_turn(self, turn: Turn) -> str:
        facts = [f"session {turn.session}: a turn on worker {turn.worker}"]
        since = None if turn.lease is None else turn.lease.running_since
        if since is not None:
            facts.append(f"{trio.current_time() - since:.0f} s so far")
        asked = self.pending_permissions.pending(turn.session)[:1]
        facts += [f"which waits for a person (pool approve -s {turn.session} {call.id})" for call in asked]
        return ", ".join(facts)

    def reconfigure(self, settings: GatewaySettings, parts: AgentParts) -> None:
        """New limits and agents, from now on."""
        self._settings.value = settings
        self.scheduler.update_limits()
        self.profile_cache.reconfigure(parts)

    async def profile_of(self, session: str) -> CapabilityProfile | None:
        """What the session's worker must be able to do; None for an unknown session."""
        entry = self.sessions.get(session)
        if entry is None:
            return None
        return await self.profile_cache.for_session(entry)

    def _cwd_of(self, session: str) -> str | None:
        entry = self.sessions.get(session)
        return None if entry is None else entry.cwd

    async def ask_worker(self, session: str, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Send a request to the session's worker, in its turn or between two. Raises PoolError, UsageError."""
        turn = self.scheduler.turn_of(session)
        if turn is not None and turn.lease is not None:
            return await turn.lease.request(method, params)
        profile = await self.profile_of(session)
        if profile is None:
            raise UsageError(f"there is no session {session!r}", session=session)
        async with self.pool.lease(session, profile, spawn=False) as lease:
            return await lease.request(method, params)

    def recover(self, loaded: Loaded) -> Recovery:
        """Take over what an earlier supervisor left; ``resume_runs`` takes up the runs that never began."""
        damaged = self.sessions.load(loaded.sessions)
        runs, interrupted = self.run_registry.recover(loaded.runs)
        self._recovered = runs
        for run in (*runs, *interrupted):
            self.delegation.resume(run)
        self.delegation.delete_leftovers()
        return Recovery(
            sessions=len(loaded.sessions),
            resumed=len(runs),
            interrupted=len(interrupted),
            damaged=damaged,
            missing=self.sessions.without_transcript(),
        )

    async def resume_runs(self) -> None:
        """Give the recovered runs that never began their places in the lanes, in the order of their acceptance.

        Each has its whole time again, and interrupts and joins no other. ``resumed`` is set when all have their places;
        requests that may need a place wait for that.
        """
        runs, self._recovered = self._recovered, []
        for number, run in enumerate(runs, start=1):
            run.request = msgspec.structs.replace(run.request, mode=QueueMode.FOLLOWUP)
            self.scheduler.submit(run)  # it has been accepted: where the lane rejects it, it ends with that error
            if number % _RESUME_BATCH == 0:
                await trio.lowlevel.checkpoint()
        self.resumed.set()


@asynccontextmanager
async def open_gateway(
    settings: GatewaySettings,
    parts: AgentParts,
    *,
    pool: Pool,
    store: Store,
    bus: EventBus,
    hooks: HookRunner,
    data_dir: Path,
    clock: Callable[[], float] = time.time,
    tracer: Tracer | None = None,
) -> AsyncGenerator[Gateway, None]:
    """A gateway over an open pool. Leaving the block ends every turn; its runs are reported as interrupted.

    ``tracer``: where the spans of runs go; None: no trace is recorded.
    """
    async with trio.open_nursery() as nursery:
        gateway = Gateway(
            settings,
            parts,
            pool=pool,
            store=store,
            bus=bus,
            hooks=hooks,
            data_dir=data_dir,
            nursery=nursery,
            clock=clock,
            tracer=tracer,
        )
        await gateway.system_events.load()
        pool.on_background(gateway.system_events.on_background)
        nursery.start_soon(gateway.scheduler.run)
        nursery.start_soon(gateway.system_events.run)
        try:
            yield gateway
        finally:
            gateway.attachments.close()
        nursery.cancel_scope.cancel()
