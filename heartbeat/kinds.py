"""What a beat is about, told by the events it carries: that decides how it is asked and how its answer is read."""

from collections.abc import Iterable
from enum import Flag
from typing import Self

__all__ = ["BeatKind"]


class BeatKind(Flag):
    """A beat may be about finished commands and scheduled tasks at once; about neither it is a plain heartbeat."""

    PLAIN = 0
    EXEC = 1
    """A command that ran in the background has finished."""
    CRON = 2
    """A scheduled task has fired."""

    @classmethod
    def of(cls, kinds: Iterable[str]) -> Self:
        """From the kinds of the pending system events; those without a prompt of their own add nothing."""
        names = set(kinds)
        found = cls.PLAIN
        if "exec" in names:
            found |= cls.EXEC
        if "cron" in names:
            found |= cls.CRON
        return found
