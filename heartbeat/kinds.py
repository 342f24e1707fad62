"""What a beat is about, told by the events it carries: that decides how it is asked and how its answer is read."""

from collections.abc import Iterable
from enum import Flag
from typing import Self

from heartbeat.system_events import RESULTS

__all__ = ["BeatKind"]


class BeatKind(Flag):
    """A beat may be about ended work and scheduled tasks at once; about neither it is a plain heartbeat."""

    PLAIN = 0
    EXEC = 1
    """A background command or a delegated task has ended."""
    CRON = 2
    """A scheduled task has fired."""

    @classmethod
    def of(cls, kinds: Iterable[str]) -> Self:
        """From the kinds of the pending system events; those without a prompt of their own add nothing."""
        names = set(kinds)
        found = cls.PLAIN
        if not names.isdisjoint(RESULTS):
            found |= cls.EXEC
        if "cron" in names:
            found |= cls.CRON
        return found
