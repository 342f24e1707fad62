"""What is seen from outside of a pool under load: one frozen fact each, in the order in which they were seen.

The judges (``stress.checker``) know nothing but facts, so a run can be judged again from its history, and a failing
history can be made shorter. ``t`` is seconds since the run began, by this process's own clock; ``number`` is the number
of a request. ``worker`` is the supervisor's name for a worker within one life; pids are the system's.
"""

import msgspec

ALL_WORKERS = "*"
"""The worker of a fault that is done to all of them."""
DAMAGED_TRANSCRIPT = "resume_failed"
"""The code of requests of a session whose transcript cannot be read, whenever it was damaged."""


class ObservedProcess(msgspec.Struct, frozen=True, gc=False):
    """A worker in ``/proc``: pid, start time in clock ticks (together they are unique), name."""

    pid: int
    started: int
    name: str


class _Observation(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Holds nothing that could hold it; a hundred thousand are kept, which the garbage collector need not look at."""

    t: float


# --- requests ---------------------------------------------------------------------------------------------------------


class RequestAsked(_Observation, frozen=True, kw_only=True, tag=True):
    """A request is about to be sent for the first time. ``turn``: seconds that its turn is to take.

    ``faulty``: its worker misbehaves on purpose, and it may fail in any way, but once.
    """

    number: int
    session: str
    profile: str
    priority: int
    timeout: float
    turn: float
    faulty: bool = False


class RequestAccepted(_Observation, frozen=True, kw_only=True, tag=True):
    """The supervisor has promised to run it; ``at`` on the supervisor's wall clock."""

    number: int
    at: float


class RequestRefused(_Observation, frozen=True, kw_only=True, tag=True):
    """The supervisor has said that it will not."""

    number: int
    code: str


class RequestStarted(_Observation, frozen=True, kw_only=True, tag=True):
    """Its turn has begun on a worker. ``at``: on the supervisor's wall clock, before the worker was told."""

    number: int
    worker: str
    at: float = 0.0


class RequestAnswered(_Observation, frozen=True, kw_only=True, tag=True):
    """Its outcome was told. ``code`` of the error, empty where there is none.

    ``said``: the numbers of the requests whose nonces stand in the text; ``strange``: nonces of no request.
    ``at``: on the supervisor's wall clock.
    """

    number: int
    reason: str
    code: str
    at: float
    session: str
    said: tuple[int, ...] = ()
    strange: tuple[str, ...] = ()


class OutcomeRemembered(_Observation, frozen=True, kw_only=True, tag=True):
    """Asked by its id, the supervisor tells this outcome; reason ``live`` = it has none yet."""

    number: int
    reason: str
    code: str = ""


class RequestForgotten(_Observation, frozen=True, kw_only=True, tag=True):
    """Asked by its id, the supervisor knows nothing of it."""

    number: int


class WaitingEnded(_Observation, frozen=True, kw_only=True, tag=True):
    """The end of the run: open requests are not waited for any longer."""


class PromptOccurrences(_Observation, frozen=True, kw_only=True, tag=True):
    """How often the request's prompt stands in its session's transcript, and in those of other sessions."""

    number: int
    own: int
    foreign: int


class DirectViolation(_Observation, frozen=True, kw_only=True, tag=True):
    """A promise was broken as its observer saw it: a sentence that says how."""

    what: str


class OrphanedRunEnded(_Observation, frozen=True, kw_only=True, tag=True):
    """The run of a front end that was killed has come to an end of its own all the same."""

    run: str


class OutcomeReceived(_Observation, frozen=True, kw_only=True, tag=True):
    """A front end that reads at once heard of an outcome so many seconds after it was ``done``."""

    front_end: int
    seconds: float


# --- the pool ---------------------------------------------------------------------------------------------------------


class PoolEvent(_Observation, frozen=True, kw_only=True, tag=True):
    """What the supervisor tells of its own workers: the name of the event, and whom it concerns; ``why`` as it says.

    ``at``: on the supervisor's wall clock.
    """

    what: str
    worker: str
    session: str = ""
    why: str = ""
    at: float = 0.0


class ProcessSample(_Observation, frozen=True, kw_only=True, tag=True):
    """The supervisor's processes in ``/proc`` at one moment.

    ``rss`` in bytes and ``fds`` are the supervisor's, None when not measured this time, or not to be; ``zombies``: pids
    of children that have ended and were not waited for.
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


class StatusSample(_Observation, frozen=True, kw_only=True, tag=True):
    """A status document, and the workers' pids in ``/proc`` just before it was asked for and just after it came.

    ``mode`` of the pool, and the counters' sums; see ``pool status --json``.
    """

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


class SupervisorStarted(_Observation, frozen=True, kw_only=True, tag=True):
    """A supervisor is ready; lives are counted from 1."""

    life: int
    supervisor: int


class SupervisorEnded(_Observation, frozen=True, kw_only=True, tag=True):
    """A supervisor's process has ended. ``code``: negative = by that signal; ``signals``: what it was sent before."""

    life: int
    code: int
    signals: tuple[int, ...]


class LeftoverProcesses(_Observation, frozen=True, kw_only=True, tag=True):
    """The processes of a life that are still there ``seconds`` after its end."""

    life: int
    seconds: float
    pids: tuple[int, ...]


class PoolDrained(_Observation, frozen=True, kw_only=True, tag=True):
    """All work is done and the pool drained: the supervisor's children, its open files, and those at the beginning.

    Files are None where they cannot be counted; ``rss`` in bytes is the supervisor's.
    """

    fds: int | None
    fds_before: int | None
    workers: int
    zombies: int
    rss: int


class FaultInjected(_Observation, frozen=True, kw_only=True, tag=True):
    """A fault. ``worker``: whom it hit, empty = no particular one, ``ALL_WORKERS`` = all; ``pid`` 0 = none.

    ``seconds``: how long it lasts, 0 = at once. ``hurts``: False where no request may feel it.
    """

    fault: str
    action: str
    worker: str = ""
    pid: int = 0
    seconds: float = 0.0
    hurts: bool = True


class ReusedPid(_Observation, frozen=True, kw_only=True, tag=True):
    """A process that is none of the pool's has got the pid of a dead worker; ``signalled``: by whatever signal."""

    pid: int
    signalled: bool


class MachineDelay(_Observation, frozen=True, kw_only=True, tag=True):
    """So many seconds at most may anything have been late since the last such fact because the machine is busy."""

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
