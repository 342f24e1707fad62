"""What methods ask of the process they run in."""

from typing import Any, Protocol

import msgspec

__all__ = ["LogPage", "SupervisorPort"]


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the supervisor's log, oldest first. Positions are bytes since the start of the supervisor.

    ``cursor``: where to read on from. ``truncated``: there were more lines, before these. ``reset``: the position asked
    for was another supervisor's.
    """

    cursor: int
    size: int
    lines: list[str]
    truncated: bool
    reset: bool


class SupervisorPort(Protocol):
    """The supervisor, as the methods see it."""

    def facts(self) -> dict[str, Any]:
        """pid, uptime in seconds, version, paths."""
        ...

    def config(self) -> msgspec.Raw:
        """The settings that hold, as JSON in the shape of their file, secrets hidden."""
        ...

    def log_tail(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """The latest lines of the log, of those after ``cursor``."""
        ...

    async def reload(self) -> dict[str, Any]:
        """Read the settings file again: what holds from now on, what waits for a restart. Raises SettingsError."""
        ...
