"""The status document: everything at one moment, of the pool and of the gateway; ``pool status --json`` prints it."""

from typing import Any

import msgspec

from gateway.events import BusStatistics
from gateway.lanes import LanesSnapshot
from gateway.turns.approvals import PendingPermission
from gateway.turns.holds import HoldStats
from heartbeat.cron.requests import CronStats
from heartbeat.delivery.outbox import DeliveryStatistics
from heartbeat.system_events import SystemEventStats
from pool import PoolStatistics
from store.records import StoreStatistics


class AutonomyStats(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment. ``heartbeats``: agents that beat by the clock; ``beating``: beats under way."""

    heartbeats: int
    beating: int
    cron: CronStats
    alerts: DeliveryStatistics


class GatewayStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway has in hand."""

    runs: int
    """Accepted and not ended."""
    sessions: int
    """Known ones."""
    lanes: LanesSnapshot
    holds: HoldStats
    """Workers that callers hold, or wait to hold."""
    permissions: list[PendingPermission]
    system_events: SystemEventStats
    events: BusStatistics
    autonomy: AutonomyStats
    store: StoreStatistics


class StatusDocument(PoolStatistics, frozen=True, kw_only=True):
    """``supervisor``: pid, uptime in seconds, version, paths."""

    gateway: GatewayStats
    supervisor: dict[str, Any]
