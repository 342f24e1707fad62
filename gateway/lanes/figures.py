"""The lanes at one moment as frozen structs: what status and tests may look at."""

import msgspec

__all__ = ["LaneFigures", "LanesSnapshot", "SessionLaneFigures"]


class LaneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One named lane in use."""

    name: str
    limit: int | None
    """Turns that may run at once; None = bounded by the pool only."""
    running: int
    waiting: int
    """Sessions that wait for a slot."""


class SessionLaneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One busy session."""

    session: str
    state: str
    turn: str | None
    runs: tuple[str, ...]
    """Those the running turn was begun for."""
    steered: int
    """Messages handed to the running turn since."""
    waiting: int
    """Messages that wait whole."""
    summarized: int
    """Messages of which a line is left."""


class LanesSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, consistent with itself."""

    running: int
    """Turns."""
    waiting: int
    """Messages without a turn, the summarized ones among them."""
    lanes: tuple[LaneFigures, ...]
    """By name."""
    sessions: tuple[SessionLaneFigures, ...]
    """Those that have been busy longest first."""
