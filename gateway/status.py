"""The status document: everything at one moment, of the pool and of the gateway; ``pool status --json`` prints it."""

from typing import Any

import msgspec

from gateway.events import BusStatistics
from gateway.lanes import LanesSnapshot
from gateway.turns.approvals import PendingPermission
from gateway.turns.holds import HoldsFigures
from heartbeat.cron.requests import CronFigures
from heartbeat.delivery.outbox import Statistics
from heartbeat.system_events import QueueFigures
from pool import PoolStatistics
from store.records import StoreStatistics


class AutonomyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment. ``heartbeats``: agents that beat by the clock; ``beating``: beats under way."""

    heartbeats: int
    beating: int
    cron: CronFigures
    alerts: Statistics


class GatewayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway has in hand."""

    runs: int
    """Accepted and not ended."""
    sessions: int
    """Known ones."""
    lanes: LanesSnapshot
    holds: HoldsFigures
    """Workers that callers hold, or wait to hold."""
    permissions: list[PendingPermission]
    system_events: QueueFigures
    events: BusStatistics
    autonomy: AutonomyFigures
    store: StoreStatistics


class StatusDocument(PoolStatistics, frozen=True, kw_only=True):
    """``supervisor``: pid, uptime in seconds, version, paths."""

    gateway: GatewayFigures
    supervisor: dict[str, Any]
