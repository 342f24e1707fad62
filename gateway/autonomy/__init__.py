"""What agents do by themselves, joined to the gateway: heartbeats, scheduled tasks, and what is told of them."""

from gateway.autonomy.service import Autonomy, AutonomySettings, open_autonomy

__all__ = ["Autonomy", "AutonomySettings", "open_autonomy"]
