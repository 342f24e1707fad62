"""What methods ask of the process they run in."""

from typing import Any, Protocol

import msgspec

__all__ = ["SupervisorPort"]


class SupervisorPort(Protocol):
    """The supervisor, as the methods see it."""

    def facts(self) -> dict[str, Any]:
        """pid, uptime in seconds, version, paths."""
        ...

    def config(self) -> msgspec.Raw:
        """The settings that hold, as JSON in the shape of their file, secrets hidden."""
        ...

    async def reload(self) -> dict[str, Any]:
        """Read the settings file again: what holds from now on, what waits for a restart. Raises SettingsError."""
        ...
