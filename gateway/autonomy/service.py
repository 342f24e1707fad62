"""Heartbeats, scheduled tasks and the delivery of their alerts over one gateway: opened, run, set anew, looked at."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio

from gateway.autonomy.events import GatewayEvents, GatewayVoice, Waker
from gateway.autonomy.names import KnownNames
from gateway.autonomy.runs import GatewayRuns
from gateway.events import EventBus
from gateway.service import Gateway
from gateway.sessions import Sessions
from gateway.status import AutonomyFigures
from heartbeat.beats import BeatPorts
from heartbeat.cron.ports import CronPorts
from heartbeat.cron.service import CronService
from heartbeat.cron.settings import CronSettings
from heartbeat.cron.zones import machine_zone
from heartbeat.delivery.channel import Channel as Carrier
from heartbeat.delivery.courier import Courier, open_courier
from heartbeat.delivery.settings import DeliverySettings
from heartbeat.delivery.stdout import StdoutOutlet
from heartbeat.delivery.targets import STDOUT, WEBHOOK
from heartbeat.delivery.webhook import open_webhooks
from heartbeat.service import Heartbeat, open_heartbeat
from heartbeat.settings import HeartbeatSettings
from router.source import peer_of
from store.documents import StoredDocuments
from wire.envelope import Channel

__all__ = ["Autonomy", "AutonomySettings", "open_autonomy"]


class AutonomySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the settings is about it. ``heartbeats``: what holds for every agent, by its name."""

    heartbeats: Mapping[str, HeartbeatSettings] = {}
    cron: CronSettings = CronSettings()
    delivery: DeliverySettings = DeliverySettings()


class Autonomy:
    """Made by ``open_autonomy``. Its parts are its interface; settings and figures concern all of them."""

    def __init__(
        self, heartbeat: Heartbeat, cron: CronService, courier: Courier, names: KnownNames, environ: Mapping[str, str]
    ) -> None:
        self.heartbeat = heartbeat
        self.cron = cron
        self._courier = courier
        self._names = names
        self._environ = environ

    async def run(self) -> None:
        """Beat, run what is due, deliver, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._courier.run)
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
            self._courier.reconfigure(channels)
            self.heartbeat.reconfigure(settings.heartbeats)
            self.cron.reconfigure(settings.cron)

        return apply

    def figures(self) -> AutonomyFigures:
        """Figures of this moment."""
        enabled, beating = self.heartbeat.figures()
        return AutonomyFigures(
            heartbeats=enabled, beating=beating, cron=self.cron.status(), alerts=self._courier.statistics()
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
    names = KnownNames(gateway, settings.delivery.webhooks)
    courier = await open_courier(
        documents,
        gateway.bus,
        channels=_channels(settings, environ),
        outlets={str(STDOUT): StdoutOutlet(write)},
        last_spoke=_LastSpoke(gateway.sessions),
        together=gateway.store.together,
        clock=clock,
    )
    ports = BeatPorts(
        runs=runs,
        events=GatewayEvents(gateway),
        alerts=courier,
        monitor=monitor,
        wall=clock,
        together=gateway.store.together,
    )
    heartbeat = await open_heartbeat(documents, ports, settings.heartbeats)
    gateway.system_events.on_queued(Waker(gateway, heartbeat).heard)
    cron = CronService(
        settings.cron,
        CronPorts(
            documents=documents,
            runs=runs,
            voice=GatewayVoice(gateway, heartbeat),
            alerts=courier,
            monitor=monitor,
            names=names.names(),
            wall=clock,
            local=machine_zone(environ),
        ),
    )
    await cron.load()
    return Autonomy(heartbeat, cron, courier, names, environ)


def _channels(settings: AutonomySettings, environ: Mapping[str, str]) -> dict[str, Carrier]:
    return {WEBHOOK: open_webhooks(settings.delivery, environ)}


class _Monitor:
    """Implements ``heartbeat.run_ports.Monitor``."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    def tell(self, type_: str, session: str, data: dict[str, Any]) -> None:
        self._bus.publish(session, Channel.MONITOR, type_, data)


class _LastSpoke:
    """Where a session last spoke: the channel of its latest message, and with whom."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def __call__(self, session: str) -> str | None:
        entry = self._sessions.get(session)
        source = None if entry is None else entry.source
        return None if source is None else f"{source.channel}:{peer_of(source).id}"
