"""What the lanes want done: the outputs of ``LaneMachine.handle``, to be performed in order."""

from enum import StrEnum

import msgspec

__all__ = ["AbortTurn", "Action", "RefusalReason", "Refuse", "StartTurn", "Steer"]


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a turn that answers for ``runs`` (oldest first; among them those of which only a summary is left).

    ``text`` is the prompt: the run's own text, or the merged one. ``TurnEnded`` must follow, whatever happens.
    """

    turn: str
    session: str
    lane: str
    priority: int
    runs: tuple[str, ...]
    text: str


class Steer(msgspec.Struct, frozen=True):
    """Put the run's text into the running turn; answer with SteerRefused when the worker does not take it."""

    turn: str
    run: str


class AbortTurn(msgspec.Struct, frozen=True):
    """End the running turn early: a newer message interrupts it. TurnEnded follows as ever."""

    turn: str


class RefusalReason(StrEnum):
    """Why a run will not have a turn."""

    FULL = "full"
    """The session's queue is full and its overflow policy refuses new messages."""
    DROPPED = "dropped"
    """The queue was full and this was its oldest message (policy ``old``)."""
    EVICTED = "evicted"
    """Too many messages wait in all, and this one had the lowest priority."""
    INTERRUPTED = "interrupted"
    """A newer message with mode ``interrupt`` replaced it."""
    CLEARED = "cleared"
    """Somebody cleared the lane."""


class Refuse(msgspec.Struct, frozen=True):
    """The run ends here, without a turn; ``text`` says why, for its caller."""

    run: str
    reason: RefusalReason
    text: str


Action = StartTurn | Steer | AbortTurn | Refuse
