"""What can be set about sessions and runs; the ``[gateway]`` table of the settings file."""

import msgspec

from wire.units import Seconds

__all__ = ["GatewaySettings"]


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of what happens between a door and a worker."""

    run_timeout: Seconds = Seconds(600)
    """A run that names no timeout of its own ends after this, waiting for a worker included; 0 = never."""
    session_queue: int = 20
    """Runs that may wait behind the running one of the same session."""
    pending_runs: int = 10_000
    """Runs that may wait or run in all."""
