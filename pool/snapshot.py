"""The machine's state and counters as frozen structs, for status, errors and tests. Times are seconds."""

from collections import Counter
from typing import NamedTuple

import msgspec


class PoolCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The pool in seven numbers; ``total`` counts live processes, starting and stopping ones included."""

    total: int
    idle: int
    leased: int
    starting: int
    stopping: int
    waiting: int
    max: int

    def __str__(self) -> str:
        return (
            f"total={self.total} idle={self.idle} leased={self.leased} starting={self.starting} "
            f"stopping={self.stopping} waiting={self.waiting} max={self.max}"
        )


class Counters(msgspec.Struct, kw_only=True):
    """Sums since start; in a snapshot ``sum(grants) == releases + lost + active``."""

    spawned: int = 0
    exits: dict[str, int] = msgspec.field(default_factory=Counter)
    """Reaped processes by cause: why we stopped it (StopReason), what it failed at (FailureKind), or ``crashed``."""
    evicted: int = 0
    parked: int = 0
    resumed: int = 0
    grants: dict[str, int] = msgspec.field(default_factory=Counter)
    """By match level."""
    releases: int = 0
    lost: int = 0
    """Holds that ended with their worker's death."""
    active: int = 0
    """Holds in force; a snapshot counts them."""
    enqueued: int = 0
    served: int = 0
    """Requests that had to wait and were granted."""
    expired: int = 0
    refused: int = 0
    cancelled: int = 0
    stalled: int = 0
    """Turns that were aborted because nothing happened in them."""


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine knows of one worker process."""

    id: str
    profile: str
    """Short signature."""
    agent: str
    role: str
    state: str
    session: str | None
    holds: int
    background: int
    turns: int
    age: float
    retiring: str | None
    node: str = ""
    """Where it runs, once it is ready; "" is this machine."""


class WaiterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One request that has no worker yet."""

    request: str
    session: str
    profile: str
    priority: int
    priority_now: float
    """With what waiting has added."""
    waited: float
    expires_in: float | None
    position: int
    """1 = the best of all waiters."""
    state: str
    """``queued``; ``blocked`` by its own session, whatever is idle; ``preparing``: its worker is made ready for it."""
    why: str


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation the machine knows."""

    key: str
    state: str
    worker: str | None
    holds: int
    busy: bool
    waiting: int
    transcript: str | None
    failed: str | None


class SessionPlacement(NamedTuple):
    """The worker that has a session's conversation open, or is prepared for it; what its next request waits for.

    ``place``: of that request among all that wait, 1 is served first; None where none waits, or it was not counted.
    """

    worker: str | None = None
    waits_for: str | None = None
    place: int | None = None


class ProfileSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One profile in use."""

    profile: str
    agent: str
    role: str
    live: int
    starting: int
    warm: int
    """Idle unbound workers."""
    min: int
    """How many of those to keep."""
    waiting: int
    breaker: str
    restarts: int
    """Workers that ended without having been stopped, or never got ready, since the profile came into use."""
    retry_in: float
    """Seconds of back-off or of an open breaker that are left."""
    last_error: str | None


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment, consistent with itself."""

    mode: str
    counts: PoolCounts
    counters: Counters
    workers: tuple[WorkerSnapshot, ...]
    waiters: tuple[WaiterSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    profiles: tuple[ProfileSnapshot, ...]


class WaitExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """How a session's next request stands among those that wait for a worker."""

    place: int
    """1 is served first."""
    waiting: int
    """How many requests wait in all."""
    why: str
    needs: str
    """What would have to happen before it gets a worker, in words."""


class WorkerExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """How well one worker fits what is wanted."""

    worker: str
    level: str
    difference: str
    """The first thing that sets it apart, in words; empty where nothing does."""
    state: str
    session: str | None


class PoolExplanation(NamedTuple):
    """How well every worker fits what is wanted, and why the session waits for one; None where it does not wait."""

    workers: list[WorkerExplanation]
    wait: WaitExplanation | None
