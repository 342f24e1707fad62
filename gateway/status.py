"""The status document of the pool and the gateway, as ``pool status --json`` prints it."""

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
    """``heartbeats``: agents whose heartbeat is on; ``beating``: beats under way."""

    heartbeats: int
    beating: int
    cron: CronStats
    alerts: DeliveryStatistics


class GatewayStats(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's part of the status."""

    runs: int
    """Live runs."""
    sessions: int
    """Known sessions."""
    lanes: LanesSnapshot
    holds: HoldStats
    """Workers that callers hold or wait for."""
    permissions: list[PendingPermission]
    system_events: SystemEventStats
    events: BusStatistics
    autonomy: AutonomyStats
    store: StoreStatistics


class StatusDocument(PoolStatistics, frozen=True, kw_only=True):
    """``supervisor``: pid, uptime in seconds, version, paths."""

    gateway: GatewayStats
    supervisor: dict[str, Any]
