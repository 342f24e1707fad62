"""What the machine remembers: mutable records of profiles, agents, workers, sessions and waiters."""

from collections import OrderedDict

import msgspec

from errors import PoolError
from pool.budget import StartBudget
from pool.places import Place
from pool.queues import ConditionQueue, ProfileQueue
from pool.stimuli import Acquire, FailureKind, StopReason, WorkerHold
from pool.transitions import SessionState, WaiterState, WorkerState
from profiles.matching import MatchLevel, can_reconcile
from profiles.profile import CapabilityProfile, SoftArgs
from wire.timers import Timer

PRIVILEGED_PRIORITY = 10
"""Requests of at least this base priority may use the reserve."""
_NEVER = float("-inf")


class Waiter:
    """One request on its way to a worker."""

    __slots__ = (
        *("bounded", "deadline", "deferred", "enqueued_at", "nested", "priority", "privileged", "profile_record"),
        *("request", "room_only", "sequence", "session", "sort_key", "state", "timer", "was_enqueued"),
    )

    def __init__(
        self, acquire: Acquire, session: "SessionRecord", kind: "ProfileRecord", now: float, number: int
    ) -> None:
        self.request = acquire.request
        self.session = session
        self.profile_record = kind
        self.priority = acquire.priority
        self.nested = acquire.nested
        self.room_only = acquire.spawn == "room"
        self.bounded = acquire.bounded
        self.privileged = acquire.nested or acquire.priority >= PRIVILEGED_PRIORITY
        self.enqueued_at = now
        self.sequence = number
        self.deadline = now
        self.sort_key = _NEVER
        self.state = WaiterState.NEW
        self.timer: Timer | None = None
        self.deferred = False
        self.was_enqueued = False  # whether it was ever put on the waiting list

    @property
    def rank(self) -> tuple[float, int]:
        """Smaller is served first."""
        return self.sort_key, self.sequence


def in_order(waiters: dict[str, Waiter]) -> list[Waiter]:
    """Waiters by request, the privileged and the best first."""
    return sorted(waiters.values(), key=lambda waiter: (not waiter.privileged, waiter.rank))


class AgentWorkers:
    """All workers of one agent definition in one place: what ``max_per_agent`` limits.

    A definition has workers in two places only while those of its former group end.
    """

    __slots__ = ("available", "condition", "forgets", "live", "name", "place", "profile_count", "unclaimed_slots")

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.forgets = False
        """Whether a conversation is lost to it with its process."""
        self.live = 0
        self.profile_count = 0
        self.available: OrderedDict[WorkerRecord, None] = OrderedDict()  # least recently used first
        self.unclaimed_slots: dict[WorkerRecord, None] = {}  # stopping workers whose slot is meant for no profile
        self.condition = ConditionQueue(f"agent {name} has all the workers it may have, and none can make room")


class HardGroup:
    """All kinds of one hard signature: the only ones that can stand in for each other."""

    __slots__ = ("profiles", "quiescent", "starting", "unbound")

    def __init__(self) -> None:
        self.profiles: dict[str, ProfileRecord] = {}
        self.starting = 0
        self.unbound = 0
        self.quiescent = 0


class ProfileRecord:
    """One profile signature with its workers, its lines of waiters and its budget."""

    __slots__ = (
        *("agent", "budget", "claims", "condition", "group", "is_dedicated", "pending_restarts", "prewarm_target"),
        "profile",
        *("prune_timer", "queues", "quiescent", "resource_count", "resources", "retry_timer", "starts_claimed"),
        *("starts_unclaimed", "unbound", "waiters", "workers"),
    )

    def __init__(self, profile: CapabilityProfile, group: HardGroup, agent: AgentWorkers) -> None:
        self.profile = profile
        self.is_dedicated = profile.is_dedicated
        self.group = group
        self.agent = agent
        self.budget = StartBudget()
        self.unbound: OrderedDict[WorkerRecord, None] = OrderedDict()
        """Idle unbound workers, least recently used first."""
        self.quiescent: OrderedDict[WorkerRecord, None] = OrderedDict()
        """Idle workers bound to a quiescent session, least recently used first."""
        self.workers: dict[WorkerRecord, None] = {}
        """All live ones, in the order of their start."""
        self.claims = 0  # waiters for whom a worker is on its way: starting, or stopping to make room
        self.starts_claimed: dict[WorkerRecord, None] = {}  # starting workers of any kind that are meant for this one
        self.starts_unclaimed: dict[WorkerRecord, None] = {}  # starting workers of this kind that are meant for none
        self.pending_restarts = 0  # workers lost, or retired without a replacement, that are to be started again
        self.waiters = 0  # requests that want this kind, wherever they wait
        self.prewarm_target = 0  # idle workers to keep warm
        self.queues = (ProfileQueue(self, privileged=False), ProfileQueue(self, privileged=True))
        self.condition = ConditionQueue(
            "its profile has all workers that it may have, or starting one has failed and is tried again"
        )
        self.retry_timer: Timer | None = None
        self.prune_timer: Timer | None = None
        self.resource_count = profile.resources.count()
        self.resources = frozenset(
            (kind, name) for kind, names in msgspec.structs.asdict(profile.resources).items() for name in names
        )

    def serves(self, wanted: "ProfileRecord") -> bool:
        """Whether a worker of this kind, freshly reset, can do all that ``wanted`` asks for."""
        return self is wanted or (
            self.group is wanted.group
            and can_reconcile(self.profile.soft, wanted.profile.soft)
            and self.resources >= wanted.resources
        )

    def match_level(self, wanted: "ProfileRecord") -> MatchLevel:
        """How well an unbound worker of this kind fits ``wanted``."""
        if self is wanted:
            return MatchLevel.EXACT
        if not self.serves(wanted):
            return MatchLevel.NONE
        return MatchLevel.HARD if self.profile.resources == wanted.profile.resources else MatchLevel.SOFT_SUPERSET

    @property
    def queued(self) -> int:
        """Waiters in both lines."""
        return self.queues[0].size + self.queues[1].size

    @property
    def is_unused(self) -> bool:
        """Whether this profile is unused now."""
        return not (self.workers or self.waiters or self.prewarm_target or self.pending_restarts)


class HoldRecord(msgspec.Struct, frozen=True):
    """One hold in force."""

    hold: WorkerHold
    session: "SessionRecord"
    worker: "WorkerRecord"
    privileged: bool


class WorkerPreparation:
    """A worker is being brought to a session: first the Reset (unless it is bound already), then the Reconcile."""

    __slots__ = ("level", "resetting", "resume_from", "soft", "waiters")

    def __init__(self, soft: SoftArgs, level: MatchLevel, *, resetting: bool, resume_from: str | None) -> None:
        self.soft = soft
        self.level = level
        self.resetting = resetting
        self.resume_from = resume_from
        self.waiters: dict[str, Waiter] = {}


class WorkerRecord:
    """One process, from Spawn to ProcessExited."""

    __slots__ = (
        *("age_timer", "background", "claimed_for", "closing_session", "failure", "id", "idle_since", "idle_timer"),
        *("is_restart", "modified", "node", "ordinary_holds", "outdated", "preparation", "profile_record", "proven"),
        *("ready_at", "replaced", "replaces", "retire_reason", "session", "session_turns", "soft", "spawned_at"),
        *("state", "stop_reason", "successor", "turns", "was_leased"),
    )

    def __init__(self, name: str, kind: ProfileRecord, now: float) -> None:
        self.id = name
        self.profile_record = kind
        self.state = WorkerState.STARTING
        self.session: SessionRecord | None = None
        """Whose conversation it is bound to (or being prepared for, or stopping with)."""
        self.closing_session: SessionRecord | None = None
        """Whose transcript it may still have open from before; closed by the next reset or its exit."""
        self.preparation: WorkerPreparation | None = None
        self.soft: SoftArgs | None = kind.profile.soft
        """Soft arguments in force; None = unknown after a failed Reconcile."""
        self.modified = False
        """Whether something else of it was changed than soft arguments, which cannot be undone."""
        self.ordinary_holds = 0
        """Holds and preparations that may not use the reserve."""
        self.background = 0
        self.claimed_for: ProfileRecord | None = None
        self.spawned_at = now
        self.ready_at: float | None = None
        self.node = ""
        self.idle_since = now
        """When it was last used."""
        self.idle_timer: Timer | None = None
        self.age_timer: Timer | None = None
        self.turns = 0
        self.session_turns = 0
        """Of its present session, since it was given the conversation."""
        self.proven = False
        """Whether it ever served a conversation."""
        self.retire_reason: str | None = None
        """Why it is to stop at the next turn boundary."""
        self.outdated = False
        """Whether the settings yield its kind no more."""
        self.successor: WorkerRecord | None = None
        self.replaced = False
        """Whether its replacement has been started."""
        self.replaces: WorkerRecord | None = None
        self.is_restart = False
        self.was_leased = False
        """Whether it was ever given to a session, whatever came of that."""
        self.stop_reason: StopReason | None = None
        self.failure: FailureKind | None = None

    @property
    def is_irreplaceable(self) -> bool:
        """Whether no other worker could go on with what it knows: only the end of the transcript would be left."""
        return self.session is not None and self.session_turns > 0 and self.profile_record.agent.forgets

    @property
    def quiescent(self) -> bool:
        """Whether it could be stopped or given to another session without ending work in progress."""
        return not self.in_use and (self.session is None or self.background == 0)

    @property
    def in_use(self) -> bool:
        """Whether a request waits for what it does now; a command in the background may run for ever and is no turn."""
        session = self.session
        return self.preparation is not None or (session is not None and (bool(session.holds) or session.busy))

    @property
    def drifted(self) -> bool:
        """Whether a default it was started with was changed, which no reset restores: no other session may use it."""
        if self.modified:
            return True
        return self.soft is not self.profile_record.profile.soft and not can_reconcile(
            self.soft, self.profile_record.profile.soft
        )

    def serves(self, wanted: ProfileRecord) -> bool:
        """Whether its own session can go on here under the profile ``wanted``."""
        if self.profile_record is wanted and self.soft == wanted.profile.soft:
            return True
        return self.profile_record.serves(wanted) and can_reconcile(self.soft, wanted.profile.soft)

    def serves_now(self, wanted: ProfileRecord) -> bool:
        """The same without waiting: a running turn, or one being prepared, keeps the model it began with."""
        soft = wanted.profile.soft
        if self.preparation is not None:
            return self.preparation.soft == soft and self.serves(wanted)
        is_held = self.session is not None and bool(self.session.holds)
        return (self.soft == soft or not is_held) and self.serves(wanted)


class SessionRecord:
    """One conversation, by key."""

    __slots__ = (
        *("busy", "failed", "holds", "key", "last_profile", "node", "resume_failures", "state", "transcript"),
        *("waiting", "worker"),
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = SessionState.PARKED
        self.worker: WorkerRecord | None = None
        """Its worker; while parking, the one that may still have its transcript open."""
        self.holds: dict[str, WorkerHold] = {}
        self.waiting: dict[str, Waiter] = {}
        """Its queued and blocked waiters, by request."""
        self.busy = False
        self.transcript: str | None = None
        self.node = ""
        """The one that its latest worker ran on."""
        self.last_profile: CapabilityProfile | None = None
        self.resume_failures = 0
        self.failed: PoolError | None = None

    @property
    def quiescent(self) -> bool:
        """No hold, nothing in flight at the gateway, no background process of its worker."""
        return not self.in_use and (self.worker is None or self.worker.background == 0)

    @property
    def in_use(self) -> bool:
        """A hold, or something in flight at the gateway."""
        return bool(self.holds) or self.busy

    @property
    def forgettable(self) -> bool:
        """Whether nothing would be lost by dropping this record."""
        return (
            self.state is SessionState.PARKED
            and self.transcript is None
            and not self.busy
            and not self.waiting
            and self.failed is None
            and self.resume_failures == 0
        )
