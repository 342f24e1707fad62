"""Heartbeat/cron/delivery adapters.

System events as heartbeats see them: what waits and nobody tells, and whom it wakes.

Heartbeats' and scheduled tasks' runs: like anybody's, but that nobody has written them.

What a scheduled task may name: agents and places of the settings that hold at the moment.

Heartbeats, scheduled tasks and the delivery of their alerts over one gateway: opened, run, set anew, looked at.

What agents do by themselves, joined to the gateway: heartbeats, scheduled tasks, and what is told of them.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import trio

from errors import PoolError, UsageError
from gateway.events import EventBus
from gateway.gateway import Gateway
from gateway.runs.run import Run, RunOutcome
from gateway.sessions.sessions import SessionEntry, Sessions
from gateway.status import AutonomyStats
from heartbeat.beat import BeatPorts
from heartbeat.cron.jobs import CronPorts, NameValidators
from heartbeat.cron.schedule import machine_zone
from heartbeat.cron.service import CronService
from heartbeat.cron.settings import CronSettings
from heartbeat.delivery.channel import DeliveryChannel as Carrier
from heartbeat.delivery.dispatcher import AlertDispatcher, StdoutOutlet, open_dispatcher
from heartbeat.delivery.settings import DeliverySettings
from heartbeat.delivery.targets import STDOUT, WEBHOOK, target_problem
from heartbeat.delivery.webhook import open_webhooks
from heartbeat.ports import BeatAnswer, BeatRequest, PendingEvent
from heartbeat.service import Heartbeat, open_heartbeat
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import SystemEvent, SystemEventKind
from heartbeat.wake import reason_of
from router.source import peer_of
from store.store import StoredDocuments
from wire.messages import EventChannel


class GatewayEvents:
    """Implements ``heartbeat.ports.EventPort``: a turn of a person's and a beat never tell the same event."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._events = gateway.system_events

    def pending_sessions(self) -> Sequence[tuple[str, str]]:
        """See ``EventPort.waiting``."""
        return [
            (agent, session)
            for session in self._events.pending_sessions()
            if self._events.unclaimed(session) and (agent := agent_of(self._gateway, session)) is not None
        ]

    def peek(self, session: str) -> Sequence[PendingEvent]:
        """See ``EventPort.peek``."""
        return self._events.unclaimed(session)

    def claim(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.claim``."""
        self._events.claim(session, ids)

    def release(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.release``."""
        self._events.release(session, ids)

    def acknowledge(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.acknowledge``."""
        self._events.acknowledge(session, ids)


class HeartbeatTrigger:
    """Wakes whoever is to be told something, as soon as it is queued.

    An agent whose settings say ``wake = false`` is not: what is queued is told with its session's next turn.
    """

    def __init__(self, gateway: Gateway, heartbeat: Heartbeat) -> None:
        self._gateway = gateway
        self._heartbeat = heartbeat

    def on_queued(self, event: SystemEvent) -> None:
        """An event has been queued."""
        agent = agent_of(self._gateway, event.session)
        if agent is not None:
            self._heartbeat.wake(agent, reason_of(event.kind), event.session)


class SystemEventSink:
    """Implements ``heartbeat.cron.jobs.Voice``: what is queued wakes, see ``HeartbeatTrigger``."""

    def __init__(self, gateway: Gateway, heartbeat: Heartbeat) -> None:
        self._gateway = gateway
        self._heartbeat = heartbeat

    def inject_and_wake(self, *, agent: str, session: str, text: str, context: str) -> None:
        """See ``WakePort.speak``."""
        problem = self.wake_problem(agent=agent, session=session)
        if problem is not None:
            raise UsageError(problem)
        self._gateway.system_events.inject(session, text, kind=SystemEventKind.CRON, context=context)

    def wake_problem(self, *, agent: str, session: str) -> str | None:
        """See ``WakePort.problem``."""
        owner = agent_of(self._gateway, session)
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
        """See ``WakePort.heard_at``."""
        return self._heartbeat.wakes_at(agent, session)


def agent_of(gateway: Gateway, session: str) -> str | None:
    """Whose the session is; the default agent's where it is nobody's yet. None for what is no key."""
    default = gateway.profile_cache.parts.router.default_agent
    try:
        return gateway.sessions.resolve(session, None, None, default=default)[1]
    except PoolError:
        return None


PRINCIPAL = "heartbeat"
"""Whose runs they are. Doors name their callers otherwise."""


class GatewayRuns:
    """Implements ``heartbeat.ports.RunPort``."""

    def __init__(self, gateway: Gateway) -> None:
        self._intake = gateway.intake
        self._scheduler = gateway.scheduler
        self._sessions = gateway.sessions
        self._session_admin = gateway.session_admin
        self._profile_cache = gateway.profile_cache
        self._pool = gateway.pool

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """See ``RunPort.run``. Raises PoolError where the run is not accepted.

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
            self._abandon(run)
            raise

    async def _begin_conversation(self, request: BeatRequest) -> None:
        """Unless the run itself was begun there in an earlier life. Raises AcquireTimeout where a turn does not end."""
        entry = self._entry(request.agent, request.session)  # another agent's is refused
        if entry is not None and entry.last_run != request.run_id:
            await self._session_admin.start_new_conversation(
                request.session, earlier=request.earlier, within=request.timeout
            )

    def _abandon(self, run: Run) -> None:
        """Nobody waits for it any more. At the supervisor's end it is left as it is: the next life asks for it."""
        if not self._intake.is_closed:
            self._scheduler.abort(run)

    def is_busy(self, session: str) -> bool:
        """See ``RunPort.is_busy``."""
        return self._scheduler.is_busy(session)

    def has_room(self, agent: str, session: str) -> bool:
        """See ``RunPort.has_room``. Of a profile that was never built, only its acquire can say."""
        entry = self._entry(agent, session)
        own = {} if entry is None else {"model": entry.model, "thinking": entry.thinking}
        profile = self._profile_cache.peek(session, agent, _role(entry), **own)
        return profile is None or self._pool.has_room(session, profile)

    def workspace_of(self, agent: str, session: str) -> str | None:
        """See ``RunPort.workspace_of``."""
        try:
            return self._profile_cache.workspace_of(agent, _role(self._entry(agent, session)), session)
        except PoolError:
            return None  # what is wrong with it is told to whoever runs the agent

    def mark_active(self, session: str) -> None:
        """See ``RunPort.touch``."""
        self._sessions.mark_active(session)

    def _entry(self, agent: str, session: str) -> SessionEntry | None:
        entry = self._sessions.get(session)
        return entry if entry is not None and entry.agent == agent else None


def _role(entry: SessionEntry | None) -> str:
    return "default" if entry is None else entry.role


def _beat_answer(outcome: RunOutcome) -> BeatAnswer:
    error = outcome.error
    return BeatAnswer(
        ok=outcome.status == "ok",
        text=outcome.text,
        media=tuple(media.path for media in outcome.media),
        code="" if error is None else error.code,
        message="" if error is None else error.message,
        started=outcome.started_at is not None,
    )


_MAX_LISTED_AGENTS = 20


class NameChecks:
    """``webhooks`` may be replaced; agents are those of the gateway."""

    def __init__(self, gateway: Gateway, webhooks: Collection[str]) -> None:
        self._gateway = gateway
        self.webhooks = webhooks

    def validators(self) -> NameValidators:
        """As scheduled tasks ask for them."""
        return NameValidators(self._agent_problem, self._target_problem, self._default_agent)

    def _default_agent(self) -> str:
        return self._gateway.profile_cache.parts.router.default_agent

    def _agent_problem(self, agent: str) -> str | None:
        profiles = self._gateway.profile_cache.parts.profiles
        if agent in profiles.agents or agent in (known := profiles.agent_names()):
            return None
        more = ", ..." if len(known) > _MAX_LISTED_AGENTS else ""
        return f"there is no agent {agent[:80]!r}; there are: {', '.join(known[:_MAX_LISTED_AGENTS])}{more}"

    def _target_problem(self, target: str) -> str | None:
        return target_problem(target, self.webhooks)


class AutonomySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the settings is about it. ``heartbeats``: what holds for every agent, by its name."""

    heartbeats: Mapping[str, HeartbeatSettings] = {}
    cron: CronSettings = CronSettings()
    delivery: DeliverySettings = DeliverySettings()


class Autonomy:
    """Made by ``open_autonomy``. Its parts are its interface; settings and figures concern all of them."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        cron: CronService,
        courier: AlertDispatcher,
        names: NameChecks,
        environ: Mapping[str, str],
    ) -> None:
        self.heartbeat = heartbeat
        self.cron = cron
        self._alert_dispatcher = courier
        self._names = names
        self._environ = environ

    async def run(self) -> None:
        """Beat, run what is due, deliver, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._alert_dispatcher.run)
            await nursery.start(self.heartbeat.run)
            nursery.start_soon(self.cron.run)

    def close(self) -> None:
        """Begin no more scheduled tasks: they are left to the supervisor's next life, as beats are."""
        self.cron.close()

    def prepare(self, settings: AutonomySettings) -> Callable[[], None]:
        """What makes these settings hold. Raises UsageError where they cannot: nothing has changed then."""
        channels = _channels(settings, self._environ)

        def apply() -> None:
            self._names.webhooks = settings.delivery.webhooks
            self._alert_dispatcher.reconfigure(channels)
            self.heartbeat.reconfigure(settings.heartbeats)
            self.cron.reconfigure(settings.cron)

        return apply

    def stats(self) -> AutonomyStats:
        """Figures of this moment."""
        enabled, beating = self.heartbeat.stats()
        return AutonomyStats(
            heartbeats=enabled, beating=beating, cron=self.cron.status(), alerts=self._alert_dispatcher.statistics()
        )


async def open_autonomy(
    gateway: Gateway,
    settings: AutonomySettings,
    *,
    write: Callable[[str], None],
    environ: Mapping[str, str],
    clock: Callable[[], float] = time.time,
) -> Autonomy:
    """All of it, as an earlier life has left it; to be opened before anybody's turn, while events are restored already.

    ``write`` takes lines for the supervisor's standard output (see ``StdoutOutlet``), ``environ`` has the secrets of
    webhooks, ``clock`` gives Unix time. Raises UsageError, StoreUnusable.
    """
    documents, monitor, runs = StoredDocuments(gateway.store), _Monitor(gateway.bus), GatewayRuns(gateway)
    names = NameChecks(gateway, settings.delivery.webhooks)
    courier = await open_dispatcher(
        documents,
        gateway.bus,
        channels=_channels(settings, environ),
        outlets={str(STDOUT): StdoutOutlet(write)},
        last_spoke=_LastChannel(gateway.sessions),
        together=gateway.store.transaction,
        clock=clock,
    )
    ports = BeatPorts(
        runs=runs,
        events=GatewayEvents(gateway),
        alerts=courier,
        monitor=monitor,
        wall=clock,
        transaction=gateway.store.transaction,
    )
    heartbeat = await open_heartbeat(documents, ports, settings.heartbeats)
    gateway.system_events.on_queued(HeartbeatTrigger(gateway, heartbeat).on_queued)
    cron = CronService(
        settings.cron,
        CronPorts(
            documents=documents,
            runs=runs,
            waker=SystemEventSink(gateway, heartbeat),
            alerts=courier,
            monitor=monitor,
            names=names.validators(),
            wall=clock,
            local=machine_zone(environ),
        ),
    )
    await cron.load()
    return Autonomy(heartbeat, cron, courier, names, environ)


def _channels(settings: AutonomySettings, environ: Mapping[str, str]) -> dict[str, Carrier]:
    return {WEBHOOK: open_webhooks(settings.delivery, environ)}


class _Monitor:
    """Implements ``heartbeat.ports.Monitor``."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    def publish(self, type_: str, session: str, data: dict[str, Any]) -> None:
        self._bus.publish(session, EventChannel.MONITOR, type_, data)


class _LastChannel:
    """Where a session last spoke: the channel of its latest message, and with whom."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def __call__(self, session: str) -> str | None:
        entry = self._sessions.get(session)
        source = None if entry is None else entry.source
        return None if source is None else f"{source.channel}:{peer_of(source).id}"
