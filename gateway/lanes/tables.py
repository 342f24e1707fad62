"""The states of runs and sessions in the lanes, and the moves between them that are legal; any other move raises."""

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["RUN_MOVES", "SESSION_MOVES", "RunState", "SessionState"]


class RunState(StrEnum):
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


RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.NEW: frozenset({RunState.WAITING, RunState.STEERED, RunState.RUNNING, RunState.ENDED}),
    RunState.WAITING: frozenset({RunState.SUMMARIZED, RunState.RUNNING, RunState.ENDED}),
    RunState.SUMMARIZED: frozenset({RunState.RUNNING, RunState.ENDED}),
    RunState.STEERED: frozenset({RunState.WAITING, RunState.ENDED}),
    RunState.RUNNING: frozenset({RunState.ENDED}),
    RunState.ENDED: frozenset(),
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
