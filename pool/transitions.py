"""The states of workers, sessions and waiters, and the moves between them that are legal; any other move raises.

Modules that ask for a state at every step give it a name of their own: to look a member up on its class costs as much
as a call.
"""

from collections.abc import Mapping
from enum import StrEnum


class WorkerState(StrEnum):
    """Where a worker process is in its life."""

    STARTING = "starting"
    """Spawned, not yet ready."""
    IDLE = "idle"
    """Available: unbound, or bound to a quiescent session."""
    LEASED = "leased"
    """Being prepared for a session, or bound to one that is not quiescent."""
    STOPPING = "stopping"
    """Asked to stop, not yet reaped; still counts against ``max``."""
    DEAD = "dead"


class SessionState(StrEnum):
    """Whether a conversation is in a process."""

    ACTIVE = "active"
    """Bound to a worker (or being put into it)."""
    PARKING = "parking"
    """Given up, but its old process may still have the transcript open: no other process may open it."""
    PARKED = "parked"
    """In no process."""


class WaiterState(StrEnum):
    """Where a request is on its way to a worker."""

    NEW = "new"
    QUEUED = "queued"
    """In its profile's line, for its session: takes whatever fits first."""
    BLOCKED = "blocked"
    """Its session stands in the way: bound elsewhere, parking, or another request of it is queued already."""
    PREPARING = "preparing"
    """Its session has a worker that is being reset or reconciled."""
    DONE = "done"
    """Granted, rejected or cancelled."""


class PoolMode(StrEnum):
    """What the pool as a whole does."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    CLOSED = "closed"


SERVING = frozenset({WorkerState.IDLE, WorkerState.LEASED})
"""Workers that have started and are not to stop."""
ENDING = frozenset({PoolMode.DRAINING, PoolMode.CLOSED})
"""Modes in which no request is taken."""

WORKER_TRANSITIONS: Mapping[WorkerState, frozenset[WorkerState]] = {
    WorkerState.STARTING: frozenset({WorkerState.IDLE, WorkerState.STOPPING, WorkerState.DEAD}),
    WorkerState.IDLE: frozenset({WorkerState.LEASED, WorkerState.STOPPING, WorkerState.DEAD}),
    WorkerState.LEASED: frozenset({WorkerState.IDLE, WorkerState.STOPPING, WorkerState.DEAD}),
    WorkerState.STOPPING: frozenset({WorkerState.DEAD}),
    WorkerState.DEAD: frozenset(),
}

SESSION_TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.PARKED: frozenset({SessionState.ACTIVE}),
    SessionState.ACTIVE: frozenset({SessionState.PARKING}),
    SessionState.PARKING: frozenset({SessionState.PARKED}),
}

WAITER_TRANSITIONS: Mapping[WaiterState, frozenset[WaiterState]] = {
    WaiterState.NEW: frozenset(
        {WaiterState.QUEUED, WaiterState.BLOCKED, WaiterState.PREPARING, WaiterState.DONE},
    ),
    WaiterState.QUEUED: frozenset({WaiterState.BLOCKED, WaiterState.PREPARING, WaiterState.DONE}),
    WaiterState.BLOCKED: frozenset({WaiterState.QUEUED, WaiterState.PREPARING, WaiterState.DONE}),
    WaiterState.PREPARING: frozenset({WaiterState.BLOCKED, WaiterState.DONE}),
    WaiterState.DONE: frozenset(),
}

MODE_TRANSITIONS: Mapping[PoolMode, frozenset[PoolMode]] = {
    PoolMode.RUNNING: frozenset({PoolMode.PAUSED, PoolMode.DRAINING, PoolMode.CLOSED}),
    PoolMode.PAUSED: frozenset({PoolMode.RUNNING, PoolMode.DRAINING, PoolMode.CLOSED}),
    PoolMode.DRAINING: frozenset({PoolMode.RUNNING, PoolMode.CLOSED}),
    PoolMode.CLOSED: frozenset(),
}
