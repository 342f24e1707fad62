"""The states of entries (runs in the lanes) and of sessions, and the moves that are legal; any other move raises."""

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["ENTRY_MOVES", "SESSION_MOVES", "EntryState", "SessionState"]


class EntryState(StrEnum):
    """Where a run is on its way to an end."""

    NEW = "new"
    WAITING = "waiting"
    """In its session's queue, whole."""
    SUMMARIZED = "summarized"
    """It gave way to newer ones: a line of it goes with the session's next prompt, whose turn answers for it."""
    STEERED = "steered"
    """Handed to the running turn, which answers for it unless it comes back."""
    RUNNING = "running"
    """Part of a turn's prompt."""
    ENDED = "ended"
    """Answered, refused or withdrawn; the machine knows it no more."""


class SessionState(StrEnum):
    """What a session waits for."""

    FREE = "free"
    """For nothing: no turn, no messages. Free sessions are not kept."""
    GATHERING = "gathering"
    """For more messages to collect, until its debounce is over."""
    QUEUED = "queued"
    """For a slot of its next message's lane."""
    RUNNING = "running"
    """For its turn to end."""
    ABORTING = "aborting"
    """The same, but the turn has been told to end, for a message that interrupts it."""


ENTRY_MOVES: Mapping[EntryState, frozenset[EntryState]] = {
    EntryState.NEW: frozenset({EntryState.WAITING, EntryState.STEERED, EntryState.RUNNING, EntryState.ENDED}),
    EntryState.WAITING: frozenset({EntryState.SUMMARIZED, EntryState.RUNNING, EntryState.ENDED}),
    EntryState.SUMMARIZED: frozenset({EntryState.RUNNING, EntryState.ENDED}),
    EntryState.STEERED: frozenset({EntryState.WAITING, EntryState.ENDED}),
    EntryState.RUNNING: frozenset({EntryState.ENDED}),
    EntryState.ENDED: frozenset(),
}

SESSION_MOVES: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.FREE: frozenset({SessionState.QUEUED, SessionState.RUNNING}),
    SessionState.GATHERING: frozenset({SessionState.QUEUED, SessionState.FREE}),
    SessionState.QUEUED: frozenset({SessionState.GATHERING, SessionState.RUNNING, SessionState.FREE}),
    SessionState.RUNNING: frozenset(
        {SessionState.ABORTING, SessionState.GATHERING, SessionState.QUEUED, SessionState.FREE}
    ),
    SessionState.ABORTING: frozenset({SessionState.GATHERING, SessionState.QUEUED, SessionState.FREE}),
}
