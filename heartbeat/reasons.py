"""Why an agent is woken, and which reason counts when there are several."""

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["ACTIONS", "EVENT_REASONS", "RANKS", "Reason", "reason_of", "stronger"]


class Reason(StrEnum):
    """What a beat is for."""

    RETRY = "retry"
    """Something that was begun is to be brought to its end."""
    INTERVAL = "interval"
    """It is time for it."""
    WAKE = "wake"
    """Somebody asked, and said no more than that."""
    EXEC = "exec"
    """A background command or a delegated task has ended."""
    CRON = "cron"
    """A scheduled task has fired."""
    HOOK = "hook"
    """Something outside has called."""
    MANUAL = "manual"
    """An operator asked."""


RANKS: Mapping[Reason, int] = {
    Reason.RETRY: 0,
    Reason.INTERVAL: 1,
    Reason.WAKE: 2,
    Reason.EXEC: 3,
    Reason.CRON: 3,
    Reason.HOOK: 3,
    Reason.MANUAL: 4,
}

ACTIONS = frozenset(reason for reason, rank in RANKS.items() if rank >= RANKS[Reason.EXEC])
"""Somebody waits for what comes of it: an ordinary place in the pool's queue, and no spacing."""

EVENT_REASONS = frozenset({Reason.WAKE, Reason.EXEC, Reason.CRON, Reason.HOOK})
"""What a beat can itself bring about, so that it could go on for ever: the flood guard holds these back."""


_OF_KINDS = {"exec": Reason.EXEC, "delegate": Reason.EXEC, "cron": Reason.CRON}


def reason_of(kind: str) -> Reason:
    """What a beat is for that tells an event of this kind: some are a reason of their own, others only wake."""
    return _OF_KINDS.get(kind, Reason.WAKE)


def stronger(known: Reason | None, new: Reason) -> Reason:
    """The reason that counts of the two: that of higher rank, of equals the newer one."""
    return new if known is None or RANKS[new] >= RANKS[known] else known
