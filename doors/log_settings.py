"""What can be set about the supervisor's log; the ``[log]`` table of the settings file."""

from typing import Literal

import msgspec

__all__ = ["LogFormat", "LogLevel", "LogSettings"]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "human", "json"]


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[log]``: what ``pool run`` writes to stderr, one line an event."""

    level: LogLevel = "info"
    """What is less important than this is left out."""
    format: LogFormat = "auto"
    """Lines for people (human), one JSON object a line (json), or whatever suits where they go (auto)."""
