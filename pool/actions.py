"""What the pool decides: the outputs of ``PoolMachine.handle``, to be carried out in order by the shell."""

from enum import StrEnum
from typing import Any

import msgspec

from errors import PoolError
from pool.stimuli import Hold
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile, SoftArgs

__all__ = ["Action", "Grant", "Notify", "Reconcile", "Reject", "Reset", "Spawn", "Stop", "StopReason"]


class Spawn(msgspec.Struct, frozen=True):
    """Start a process of ``profile``; answer with WorkerReady, or WorkerFailed(START) and WorkerExited."""

    worker: str
    profile: CapabilityProfile


class Reset(msgspec.Struct, frozen=True):
    """Put a conversation into the worker: the transcript ``resume_from``, or a new one where it is None.

    ``is_fresh``: it has just started, and what it begins with is as new as any, where nothing was said in it.
    Answer with WorkerResetDone (after get_state has confirmed it) or WorkerFailed(RESET | RESUME).
    """

    worker: str
    session: str
    resume_from: str | None
    is_fresh: bool = False


class Reconcile(msgspec.Struct, frozen=True):
    """Bring model and thinking level to ``soft``; answer with WorkerReconciled or WorkerFailed(RECONCILE)."""

    worker: str
    soft: SoftArgs


class Grant(msgspec.Struct, frozen=True):
    """The request has its worker, ready and holding the right conversation."""

    request: str
    hold: Hold
    level: MatchLevel


class Reject(msgspec.Struct, frozen=True):
    """The request ends without a worker."""

    request: str
    error: PoolError


class StopReason(StrEnum):
    """Why a worker is stopped; the name in counters, status and events."""

    EVICTED = "evicted"
    UNPINNED = "unpinned"
    """It ran background commands for a session that was not in use; see ``PoolSettings.max_pinned``."""
    MISMATCH = "mismatch"
    """It ran background commands for a session that needs a worker of another profile, and was not in use."""
    RETIRED = "retired"
    IDLE = "idle"
    FAILED = "failed"
    OPERATOR = "operator"
    DRAINED = "drained"
    CLOSED = "closed"


class Stop(msgspec.Struct, frozen=True):
    """End the worker's process by the kill ladder; answer with WorkerExited. ``force`` skips the polite rungs."""

    worker: str
    reason: StopReason
    force: bool = False


class Notify(msgspec.Struct, frozen=True):
    """Something worth telling: ``worker_spawned``, ``session_bound``, ``session_parked``, ``breaker_opened`` ..."""

    event: str
    data: dict[str, Any]


Action = Spawn | Reset | Reconcile | Grant | Reject | Stop | Notify
