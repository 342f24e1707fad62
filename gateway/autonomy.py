"""Adapters that join heartbeats, scheduled tasks and alert delivery to the gateway."""

import errno
import math
import time
from collections.abc import Callable, Mapping
from typing import Self

import msgspec
import trio

from errors import PoolError, UsageError, WorkerError
from gateway.gateway import Gateway
from gateway.runs.run import RunOutcome
from gateway.sessions.session_entry import SessionEntry
from gateway.sessions.system_events import SystemEvents
from heartbeat.beat import BeatPorts
from heartbeat.cron.jobs import CronPorts, NameValidators
from heartbeat.cron.requests import CronStats
from heartbeat.cron.schedule import machine_zone
from heartbeat.cron.service import CronService
from heartbeat.cron.settings import CronSettings
from heartbeat.delivery.dispatcher import AlertDispatcher, StdoutOutlet
from heartbeat.delivery.outbox import DeliveryStatistics
from heartbeat.delivery.settings import DeliverySettings
from heartbeat.delivery.targets import STDOUT, target_problem
from heartbeat.delivery.webhook import open_webhooks
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.service import Heartbeat, open_heartbeat
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import SystemEventKind
from router.source import peer_of
from rpc.workspace import fetch_workspace_file
from store.store import StoredDocuments
from wire.terminal import with_last_words

PRINCIPAL = "heartbeat"
"""Whose runs they are. Doors name their callers otherwise."""
_MAX_READERS = 4
"""Files read at once; a hanging file system holds up only other checklists."""


class GatewayRuns:
    """Implements ``heartbeat.ports.BeatRunPort``."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._intake = gateway.intake
        self._scheduler = gateway.scheduler
        self._sessions = gateway.sessions
        self._profile_cache = gateway.profile_cache
        self._readers = trio.CapacityLimiter(_MAX_READERS)

    def agent_of(self, session: str) -> str | None:
        """The agent that owns the session, or the default agent; None for an invalid key."""
        try:
            default = self._profile_cache.parts.router.default_agent
            return self._sessions.resolve(session, None, None, default=default)[1]
        except PoolError:
            return None

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """Run to the end. Raises PoolError where the run is not accepted.

        While the supervisor is shutting down nothing begins, and nothing fails for that: it waits for the end.
        """
        if self._intake.is_closed:
            await trio.sleep_forever()
        if request.new_conversation:
            await self._begin_conversation(request)
        run = await self._intake.accept_beat(request, PRINCIPAL)
        try:
            return _beat_answer(await run.wait())
        except trio.Cancelled:
            if not self._intake.is_closed:  # at shutdown it stays: the next supervisor asks for it
                self._scheduler.abort(run)
            raise

    async def _begin_conversation(self, request: BeatRequest) -> None:
        """Unless the run itself was begun there in an earlier life. Raises AcquireTimeout where a turn does not end."""
        entry = self._entry(request.agent, request.session)  # another agent's is refused
        if entry is not None and entry.last_run != request.run_id:
            await self._gateway.session_admin.start_new_conversation(
                request.session, earlier=request.earlier, within=request.timeout
            )

    def is_busy(self, session: str) -> bool:
        """Whether a turn of the session runs or waits for its worker."""
        return self._scheduler.is_busy(session)

    def has_room(self, agent: str, session: str) -> bool:
        """Whether a worker is free or can start. For a profile that was never built, assume so: its acquire decides."""
        entry = self._entry(agent, session)
        own = {} if entry is None else {"model": entry.model, "thinking": entry.thinking}
        profile = self._profile_cache.peek(session, agent, _role(entry), **own)
        return profile is None or self._gateway.pool.has_room(session, profile)

    async def read_file(self, agent: str, session: str, name: str, limit: int) -> bytes:
        """Where the session has a worker, on that worker's machine. Raises OSError, ValueError, PoolError."""
        worker = self._gateway.pool.worker_of(session)
        if worker is not None:
            return await worker.fetch(name, limit)
        role = _role(self._entry(agent, session))
        try:
            workspace = self._profile_cache.workspace_of(agent, role, session)
        except PoolError as exc:  # running the agent reports the error
            raise FileNotFoundError(errno.ENOENT, "its directory is unknown") from exc
        if group := self._profile_cache.parts.profiles.group_of(agent):
            raise WorkerError(f"it lies on a node of group {group}, where the session has no worker")
        return await fetch_workspace_file(workspace, name, limit, self._readers)

    def mark_active(self, session: str) -> None:
        """Count the session as active now."""
        self._sessions.mark_active(session)

    def _entry(self, agent: str, session: str) -> SessionEntry | None:
        entry = self._sessions.get(session)
        return entry if entry is not None and entry.agent == agent else None


class SystemEventSink:
    """Implements ``heartbeat.cron.jobs.WakePort``: a queued event wakes the session's agent."""

    def __init__(self, events: SystemEvents, runs: GatewayRuns, heartbeat: Heartbeat) -> None:
        self._events = events
        self._runs = runs
        self._heartbeat = heartbeat

    def inject_and_wake(self, *, agent: str, session: str, text: str, context: str) -> None:
        """Queue the event. Raises UsageError where ``wake_problem`` finds a reason."""
        problem = self.wake_problem(agent=agent, session=session)
        if problem is not None:
            raise UsageError(problem)
        self._events.inject(session, text, kind=SystemEventKind.CRON, context=context)

    def wake_problem(self, *, agent: str, session: str) -> str | None:
        """Explain why the agent would not be woken there, and what to do; None = it would be."""
        owner = self._runs.agent_of(session)
        if owner != agent:
            return (
                f"session {session} is agent {owner}'s, and the job is agent {agent}'s, who would not hear of it "
                f'there; name a session of {agent}\'s, or give the job agent = "{owner}"'
            )
        if not self._heartbeat.wakes_on_events(agent):
            return (
                f"events do not wake agent {agent}, so a job of mode main does not run; set "
                f'agents.{agent}.heartbeat.wake = true, or give the job mode = "isolated"'
            )
        if self._heartbeat.wakes_at(agent, session) == math.inf:
            return (
                f"the active hours of agent {agent} never begin, so a job of mode main does not run; change "
                f'agents.{agent}.heartbeat.active_hours, or give the job mode = "isolated"'
            )
        return None

    def wakes_at(self, *, agent: str, session: str) -> float | None:
        """When an event of now wakes the agent, in Unix time; None = at once."""
        return self._heartbeat.wakes_at(agent, session)


def _role(entry: SessionEntry | None) -> str:
    return "default" if entry is None else entry.role


def _beat_answer(outcome: RunOutcome) -> BeatAnswer:
    error = outcome.error
    return BeatAnswer(
        ok=outcome.status == "ok",
        text=outcome.text,
        media=tuple(media.path for media in outcome.media),
        code="" if error is None else error.code,
        message="" if error is None else with_last_words(error.message, error.data.get("stderr_tail")),
        started=outcome.started_at is not None,
    )


_MAX_LISTED_AGENTS = 20


class AutonomySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of autonomy. ``heartbeats``: the effective settings of every agent, by name."""

    heartbeats: Mapping[str, HeartbeatSettings] = {}
    cron: CronSettings = CronSettings()
    delivery: DeliverySettings = DeliverySettings()


class AutonomyStats(msgspec.Struct, frozen=True, kw_only=True):
    """``heartbeats``: agents whose heartbeat is on; ``beating``: beats under way."""

    heartbeats: int
    beating: int
    cron: CronStats
    alerts: DeliveryStatistics


class Autonomy:
    """Heartbeats, scheduled tasks, and the delivery of their alerts over one gateway."""

    heartbeat: Heartbeat
    cron: CronService
    _dispatcher: AlertDispatcher

    def __init__(self, gateway: Gateway, settings: AutonomySettings, environ: Mapping[str, str]) -> None:
        """Use ``open``."""
        self._gateway = gateway
        self._settings = settings
        self._environ = environ

    @classmethod
    async def open(
        cls,
        gateway: Gateway,
        settings: AutonomySettings,
        *,
        write: Callable[[str], None],
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open autonomy as the previous supervisor left it: after system events are restored, before the first turn.

        ``write`` takes lines for standard output (``StdoutOutlet``), ``environ`` holds the secrets of webhooks,
        ``clock`` gives Unix time. Raises UsageError, StoreUnusable.
        """
        self = cls(gateway, settings, environ)
        documents, runs = StoredDocuments(gateway.store), GatewayRuns(gateway)
        self._dispatcher = AlertDispatcher(
            documents,
            gateway.bus,
            channels=open_webhooks(settings.delivery, self._environ),
            outlets={str(STDOUT): StdoutOutlet(write)},
            last_channel=self._last_channel,
            transaction=gateway.store.transaction,
            clock=clock,
        )
        await self._dispatcher.load()
        ports = BeatPorts(
            runs=runs,
            events=gateway.system_events,
            alerts=self._dispatcher,
            monitor=gateway.bus,
            wall=clock,
            transaction=gateway.store.transaction,
        )
        self.heartbeat = await open_heartbeat(documents, ports, settings.heartbeats)
        gateway.system_events.on_queued(self.heartbeat.wake_for)
        self.cron = self._make_cron(documents, runs, clock)
        await self.cron.load()
        return self

    def _make_cron(self, documents: StoredDocuments, runs: GatewayRuns, clock: Callable[[], float]) -> CronService:
        gateway = self._gateway
        ports = CronPorts(
            documents=documents,
            runs=runs,
            waker=SystemEventSink(gateway.system_events, runs, self.heartbeat),
            alerts=self._dispatcher,
            monitor=gateway.bus,
            names=NameValidators(self._agent_problem, self._target_problem, self._default_agent),
            wall=clock,
            local=machine_zone(self._environ),
        )
        return CronService(self._settings.cron, ports)

    async def run(self) -> None:
        """Beat, run due jobs and deliver alerts until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._dispatcher.run)
            await nursery.start(self.heartbeat.run)
            nursery.start_soon(self.cron.run)

    def close(self) -> None:
        """Start no more scheduled tasks; the next supervisor runs them."""
        self.cron.close()

    def prepare(self, settings: AutonomySettings) -> Callable[[], None]:
        """Return what applies these settings. Raises UsageError for a webhook without its secret; nothing changes."""
        channels = open_webhooks(settings.delivery, self._environ)

        def apply() -> None:
            self._settings = settings
            self._dispatcher.channels = channels
            self.heartbeat.reconfigure(settings.heartbeats)
            self.cron.reconfigure(settings.cron)

        return apply

    def stats(self) -> AutonomyStats:
        """Return the current figures."""
        enabled, beating = self.heartbeat.stats()
        return AutonomyStats(
            heartbeats=enabled, beating=beating, cron=self.cron.status(), alerts=self._dispatcher.statistics()
        )

    # --- names and places ---------------------------------------------------------------------------------------------

    def _default_agent(self) -> str:
        return self._gateway.profile_cache.parts.router.default_agent

    def _agent_problem(self, agent: str) -> str | None:
        profiles = self._gateway.profile_cache.parts.profiles
        if agent in profiles.agents or agent in (known := profiles.agent_names()):
            return None
        more = ", ..." if len(known) > _MAX_LISTED_AGENTS else ""
        return f"there is no agent {agent[:80]!r}; there are: {', '.join(known[:_MAX_LISTED_AGENTS])}{more}"

    def _target_problem(self, target: str) -> str | None:
        return target_problem(target, self._settings.delivery.webhooks)

    def _last_channel(self, session: str) -> str | None:
        """The channel of the session's latest message, and its peer."""
        entry = self._gateway.sessions.get(session)
        source = None if entry is None else entry.source
        return None if source is None else f"{source.channel}:{peer_of(source).id}"
