"""Match levels: how well a live worker's profile fits what a session asks for."""

from enum import IntEnum

__all__ = ["MatchLevel"]


class MatchLevel(IntEnum):
    """Best first. ``BOUND`` is the session's own worker."""

    BOUND = 0
    EXACT = 1
    HARD = 2
    SOFT_SUPERSET = 3
    NONE = 9

    @property
    def label(self) -> str:
        """The name in counters, status and explanations."""
        return self.name.lower()
