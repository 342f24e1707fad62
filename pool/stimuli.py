"""Inputs (stimuli) and outputs (actions) of ``PoolMachine.handle``: plain facts, no behaviour."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from errors import PoolError
from pool.settings import PoolSettings
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile, SoftArgs

SpawnPolicy = bool | Literal["room"]
"""Whether a process may be started for a request: False not at all, ``"room"`` only where the pool has room."""


class WorkerHold(msgspec.Struct, frozen=True):
    """One request's right to a worker. ``generation`` rises with every grant, so a stale hold is recognised."""

    request: str
    session: str
    worker: str
    generation: int


class Acquire(msgspec.Struct, frozen=True, kw_only=True):
    """A request wants the worker of ``session`` (bound, matching, new or freed). Ends in one Grant or one Reject.

    ``deadline`` is on the machine's clock; None = now + ``waiting_timeout``. ``spawn``: False neither spawns
    nor waits; ``"room"`` spawns only where the pool has room: it stops no worker and waits for nothing but that start.
    ``nested``: an ancestor of this run holds a worker, so it may use the reserve and must not wait behind it.
    ``bounded``: counts against ``waiting_capacity`` (direct acquires do, a gateway's runs do not).
    """

    request: str
    session: str
    profile: CapabilityProfile
    priority: int = 5
    deadline: float | None = None
    spawn: SpawnPolicy = True
    nested: bool = False
    bounded: bool = True


class Cancel(msgspec.Struct, frozen=True):
    """The caller no longer wants its worker; a hold that was just granted is given back. Unknown requests: no-op."""

    request: str


class Release(msgspec.Struct, frozen=True):
    """One hold ends; ``turns`` is how many turns it ran. A stale generation is refused (UsageError).

    ``lost``: the worker no longer has the session's conversation, which is to be put into one again.
    """

    hold: WorkerHold
    turns: int = 1
    lost: bool = False


class SessionBusy(msgspec.Struct, frozen=True):
    """The gateway: a turn is in flight, something is queued, or output is not yet delivered. Not counted, a flag."""

    session: str


class SessionIdle(msgspec.Struct, frozen=True):
    """The gateway: none of that any more."""

    session: str


class BackgroundCount(msgspec.Struct, frozen=True):
    """The worker reports how many processes it runs in the background for its session."""

    worker: str
    running: int


class MemoryUsage(msgspec.Struct, frozen=True):
    """Resident size in bytes by worker, measured by the shell now and then."""

    rss: dict[str, int]


class TurnStalled(msgspec.Struct, frozen=True):
    """A turn of the worker was silent for ``turn_stall``, and is being aborted."""

    worker: str


class SessionKnown(msgspec.Struct, frozen=True):
    """A session has a transcript from before (an earlier life of the supervisor, or the worker moved to a new file)."""

    session: str
    transcript: str | None


class ForgetSession(msgspec.Struct, frozen=True):
    """The session's conversation ends here: its transcript is forgotten and its next grant begins a new one.

    Only for sessions without a hold (UsageError otherwise). Also lifts a ResumeFailed.
    """

    session: str


class AgentLearned(msgspec.Struct, frozen=True):
    """What its workers have shown of an agent: it ``forgets``, so a conversation is lost to it with the process."""

    agent: str
    forgets: bool


class SessionAsks(msgspec.Struct, frozen=True):
    """The session's turn waits for a person to decide about this tool call; None: for no call any more."""

    session: str
    call: str | None


class WorkerReady(msgspec.Struct, frozen=True):
    """A spawned worker can take requests, on that node ("" is this machine)."""

    worker: str
    node: str = ""


class WorkerResetDone(msgspec.Struct, frozen=True):
    """The Reset of this worker succeeded and was verified; ``transcript`` is the session's file, if it keeps one."""

    worker: str
    session: str
    transcript: str | None


class WorkerReconciled(msgspec.Struct, frozen=True):
    """The Reconcile of this worker succeeded."""

    worker: str


class FailureKind(StrEnum):
    """What a worker failed at; decides whose budget it counts against."""

    START = "start"
    """Not spawned, or not ready in time: the profile's breaker."""
    RESET = "reset"
    """A reset to a new conversation failed: the worker is killed."""
    RESUME = "resume"
    """The session's transcript could not be resumed: the worker is killed, the session's budget of 2 is charged."""
    DISK_FULL = "no_room"
    """A reset was refused because the disk is full: the request fails with the worker's words, the worker goes on."""
    UNFIT = "unfit"
    """A reset showed that any worker of the program would refuse it: the request fails, the worker is replaced."""
    RECONCILE = "reconcile"
    """Model or thinking level refused: the request fails with the worker's words, the worker goes on."""
    CRASHED = "crashed"
    """The process ended by itself; reported at once, while what it left behind is still being swept."""
    UNRESPONSIVE = "unresponsive"
    STALLED = "stalled"
    LOST = "lost"
    """Its node is gone, or out of reach: nothing is held against profile or session."""
    PROTOCOL = "protocol"


class WorkerModified(msgspec.Struct, frozen=True):
    """Something of the worker was changed that no reset restores: no other session may have it afterwards."""

    worker: str


class WorkerFailed(msgspec.Struct, frozen=True):
    """A worker failed while its process (if there is one) may still live; ProcessExited follows when it is reaped.

    For a START failure without a process the shell sends ProcessExited right after.
    """

    worker: str
    kind: FailureKind
    error: PoolError


class ProcessExited(msgspec.Struct, frozen=True):
    """The worker's process is gone and reaped. ``error`` describes it to requests that still waited for that worker."""

    worker: str
    error: PoolError


class StopWorker(msgspec.Struct, frozen=True):
    """An operator wants this worker gone now; its session is parked, its turn fails."""

    worker: str


class RecycleWorker(msgspec.Struct, frozen=True):
    """This worker is to end at its next turn boundary.

    ``replace``: another one takes its place, and is started first where there is room; False where its node is to be
    empty.
    """

    worker: str
    replace: bool = True


class SetPrewarm(msgspec.Struct, frozen=True):
    """Which profiles to keep warm, and how many idle workers of each (replaces the earlier list)."""

    targets: tuple[tuple[CapabilityProfile, int], ...]


class ProfilesChanged(msgspec.Struct, frozen=True):
    """The settings have changed: what agents, roles and sessions yield from now on are ``signatures``.

    Workers of other profiles stop: idle ones at once, those in use at their next turn boundary, starting ones once
    no request waits for them. None of those profiles is kept warm any more. It says nothing about requests to come.
    """

    signatures: frozenset[str]


class ClockTick(msgspec.Struct, frozen=True):
    """Time has passed: sent at ``next_wakeup`` and at the maintenance interval."""


class SettingsChanged(msgspec.Struct, frozen=True):
    """New limits; effective at once; no request is lost."""

    settings: PoolSettings


class Capacity(msgspec.Struct, frozen=True):
    """How many workers may live on the nodes of each group, from now on; a group that is not named has no slot.

    A node that takes nothing new counts with the workers that it still has. Of a lost node, report all workers failed
    (WorkerFailed), then the capacity, then each end (ProcessExited) after the capacity that is left: in another order
    healthy workers would be stopped for lost ones, or workers started where there is nothing.

    ``starters``: nodes that start workers, each with ``spawn_burst`` and ``spawn_rate`` of its own; ``start_rate``:
    starts a second in all, None for no such limit.
    """

    slots: Mapping[str, int]
    starters: int = 1
    start_rate: float | None = None


class Pause(msgspec.Struct, frozen=True):
    """No new grants until Resume; waiters keep waiting (and expire), holds go on."""


class Resume(msgspec.Struct, frozen=True):
    """Undo Pause or Drain."""


class Drain(msgspec.Struct, frozen=True):
    """No new acquires; waiters are refused, holds end in their own time, idle workers stop."""


class Close(msgspec.Struct, frozen=True):
    """Everything stops: waiters are refused, all workers stopped, held or not."""


Stimulus = (
    Acquire
    | Cancel
    | Release
    | SessionBusy
    | SessionIdle
    | BackgroundCount
    | MemoryUsage
    | TurnStalled
    | SessionKnown
    | ForgetSession
    | AgentLearned
    | SessionAsks
    | WorkerReady
    | WorkerResetDone
    | WorkerReconciled
    | WorkerModified
    | WorkerFailed
    | ProcessExited
    | StopWorker
    | RecycleWorker
    | SetPrewarm
    | ProfilesChanged
    | ClockTick
    | SettingsChanged
    | Capacity
    | Pause
    | Resume
    | Drain
    | Close
)


class Spawn(msgspec.Struct, frozen=True):
    """Start a process of ``profile``; answer with WorkerReady, or WorkerFailed(START) and ProcessExited.

    ``near``: the node that the session was on for which it is started, a wish; "" where there is none.
    """

    worker: str
    profile: CapabilityProfile
    near: str = ""


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
    hold: WorkerHold
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
    """End the worker's process by the kill ladder; answer with ProcessExited. ``force`` skips the polite rungs."""

    worker: str
    reason: StopReason
    force: bool = False


class Notify(msgspec.Struct, frozen=True):
    """Something worth telling: ``worker_spawned``, ``session_bound``, ``session_parked``, ``breaker_opened`` ..."""

    event: str
    data: dict[str, Any]


Action = Spawn | Reset | Reconcile | Grant | Reject | Stop | Notify
