"""Observations of a pool under load from outside: frozen facts, in order of observation.

The checks (``stress.checker``) know nothing but facts, so a history can be checked again, and shortened. ``t``: seconds
since the run began, by this process's clock; ``number``: of a request; ``worker``: the supervisor's name for it, unique
within one life; pids are the system's.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

ALL_WORKERS = "*"
"""The worker of a fault that affects all of them."""
DAMAGED_TRANSCRIPT = "resume_failed"
"""Error code of requests whose session has an unreadable transcript, whenever it was damaged."""


class ObservedProcess(msgspec.Struct, frozen=True, gc=False):
    """A worker in ``/proc``: pid, start time in clock ticks (together they are unique), name."""

    pid: int
    started: int
    name: str


class _Observation(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Cannot be part of a reference cycle; the garbage collector skips the hundred thousand that are kept."""

    t: float


# --- requests ---------------------------------------------------------------------------------------------------------


class RequestFact(_Observation, frozen=True, kw_only=True):
    """A fact about one request."""

    number: int


class RequestAsked(RequestFact, frozen=True, kw_only=True):
    """A request is about to be sent for the first time. ``turn``: requested seconds of its turn.

    ``faulty``: its worker misbehaves on purpose; any outcome is allowed, but only one.
    """

    session: str
    profile: str
    priority: int
    timeout: float
    turn: float
    faulty: bool = False


class RequestAccepted(RequestFact, frozen=True, kw_only=True):
    """The supervisor has accepted it; ``at``: the supervisor's wall clock."""

    at: float


class RequestRefused(RequestFact, frozen=True, kw_only=True):
    """The supervisor has refused it."""

    reason: ClassVar[str] = "refused"
    code: str


class RequestStarted(RequestFact, frozen=True, kw_only=True):
    """Its turn has begun on a worker. ``at``: the supervisor's wall clock, before the worker got the prompt."""

    worker: str
    at: float = 0.0


class RequestAnswered(RequestFact, frozen=True, kw_only=True):
    """Its outcome was published. ``code``: of the error, else empty; ``at``: the supervisor's wall clock.

    ``said``: numbers of the requests whose nonces stand in the text; ``strange``: nonces of no request.
    """

    reason: str
    code: str
    at: float
    session: str
    said: tuple[int, ...] = ()
    strange: tuple[str, ...] = ()


class OutcomeRemembered(RequestFact, frozen=True, kw_only=True):
    """The supervisor's answer to a query by id; reason ``live`` = no outcome yet."""

    reason: str
    code: str = ""


class RequestForgotten(RequestFact, frozen=True, kw_only=True):
    """The supervisor does not know the id."""

    reason: ClassVar[str] = "forgotten"
    code: ClassVar[str] = ""


class WaitingEnded(_Observation, frozen=True, kw_only=True):
    """The end of the run: open requests are given up."""


class PromptOccurrences(RequestFact, frozen=True, kw_only=True):
    """Occurrences of the request's prompt in its session's transcript, and in those of other sessions."""

    own: int
    foreign: int


class DirectViolation(_Observation, frozen=True, kw_only=True):
    """A broken promise that the observer itself has found, as a sentence."""

    what: str


class OrphanedRunEnded(_Observation, frozen=True, kw_only=True):
    """The run of a front end that was killed has ended nevertheless."""

    run: str


class OutcomeReceived(_Observation, frozen=True, kw_only=True):
    """A front end that reads at once received an outcome ``seconds`` after it was ``done``."""

    front_end: int
    seconds: float


# --- the pool ---------------------------------------------------------------------------------------------------------


class PoolEvent(_Observation, frozen=True, kw_only=True):
    """The supervisor's event ``what`` about a worker; ``why``: its reason; ``at``: the supervisor's wall clock."""

    what: str
    worker: str
    session: str = ""
    why: str = ""
    at: float = 0.0


class ProcessSample(_Observation, frozen=True, kw_only=True):
    """The supervisor's processes in ``/proc`` at one moment; ``zombies``: pids of children that were not reaped.

    ``rss`` in bytes and ``fds`` are the supervisor's, None if not measured.
    """

    life: int
    supervisor: int
    workers: tuple[ObservedProcess, ...]
    zombies: tuple[int, ...] = ()
    rss: int | None = None
    fds: int | None = None


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker as status shows it."""

    id: str
    pid: int | None
    profile: str
    state: str
    session: str | None
    turns: int
    retiring: str | None = None


class WaiterRow(msgspec.Struct, frozen=True):
    """One waiter as status shows it."""

    request: str
    session: str
    profile: str
    why: str
    state: str


class StatusSample(_Observation, frozen=True, kw_only=True):
    """A status document with the sums of its counters, and the workers' pids in ``/proc`` just before and after it."""

    life: int
    mode: str
    max: int
    workers: tuple[WorkerRow, ...]
    waiting: tuple[WaiterRow, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    grants: int
    releases: int
    lost: int
    active: int


class SupervisorStarted(_Observation, frozen=True, kw_only=True):
    """A supervisor is ready; lives are counted from 1."""

    life: int
    supervisor: int


class SupervisorEnded(_Observation, frozen=True, kw_only=True):
    """A supervisor's process has ended. ``code``: negative = by that signal; ``signals``: those sent to it before."""

    life: int
    code: int
    signals: tuple[int, ...]


class LeftoverProcesses(_Observation, frozen=True, kw_only=True):
    """Processes of a life that still exist ``seconds`` after its end."""

    life: int
    seconds: float
    pids: tuple[int, ...]


class PoolDrained(_Observation, frozen=True, kw_only=True):
    """The pool is drained: the supervisor's children, its size in bytes, its open files now and at the beginning.

    Files are None if they cannot be counted.
    """

    fds: int | None
    fds_before: int | None
    workers: int
    zombies: int
    rss: int


class FaultInjected(_Observation, frozen=True, kw_only=True):
    """A fault. ``worker``: empty = no particular one, ``ALL_WORKERS`` = all; ``pid`` 0 = none.

    ``seconds``: its duration, 0 = instantaneous. ``hurts``: False if no request may be affected.
    """

    fault: str
    action: str
    worker: str = ""
    pid: int = 0
    seconds: float = 0.0
    hurts: bool = True


class ReusedPid(_Observation, frozen=True, kw_only=True):
    """An unrelated process has got the pid of a dead worker; ``signalled``: it received a signal."""

    pid: int
    signalled: bool


class MachineDelay(_Observation, frozen=True, kw_only=True):
    """Seconds by which the busy machine may have delayed anything since the last such fact."""

    seconds: float


Fact = (
    RequestAsked
    | RequestAccepted
    | RequestRefused
    | RequestStarted
    | RequestAnswered
    | OutcomeRemembered
    | RequestForgotten
    | WaitingEnded
    | PromptOccurrences
    | DirectViolation
    | OrphanedRunEnded
    | OutcomeReceived
    | PoolEvent
    | ProcessSample
    | StatusSample
    | SupervisorStarted
    | SupervisorEnded
    | LeftoverProcesses
    | PoolDrained
    | FaultInjected
    | ReusedPid
    | MachineDelay
)


class Journal:
    """Takes the facts of a run. ``now``: seconds since the run began."""

    def __init__(self, now: Callable[[], float], record: Callable[[Fact], None]) -> None:
        self.now = now
        self.record = record

    def record_violation(self, what: str) -> None:
        """Record a broken promise that no other fact shows."""
        self.record(DirectViolation(t=self.now(), what=what))
