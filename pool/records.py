"""What the machine remembers: one mutable record per profile, agent, worker and session. Facts, little behaviour."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from errors import PoolError
from pool.budget import StartBudget
from pool.stimuli import FailureKind, StopReason, WorkerHold
from pool.transitions import SessionState, WorkerState
from pool.waiting_list import ConditionQueue, ProfileQueue, Waiter
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile, SoftArgs

if TYPE_CHECKING:
    from wire.timers import Timer


class AgentWorkers:
    """All workers of one agent definition: what ``max_per_agent`` limits."""

    __slots__ = ("available", "condition", "live", "name", "profile_count")

    def __init__(self, name: str) -> None:
        self.name = name
        self.live = 0
        self.profile_count = 0
        self.available: OrderedDict[WorkerRecord, None] = OrderedDict()
        """Available workers, least recently used first."""
        self.condition = ConditionQueue(f"agent {name} has all the workers it may have, and none can make room")


class HardGroup:
    """All kinds of one hard signature: the only ones that can stand in for each other."""

    __slots__ = ("profiles", "quiescent", "starting", "unbound")

    def __init__(self) -> None:
        self.profiles: dict[str, ProfileRecord] = {}
        self.starting: dict[WorkerRecord, None] = {}
        self.unbound = 0
        self.quiescent = 0


class ProfileRecord:
    """One profile signature with its workers, its lines of waiters and its budget."""

    __slots__ = (
        "agent",
        "budget",
        "claims",
        "condition",
        "group",
        "live",
        "pending_restarts",
        "prewarm_target",
        "profile",
        "prune_timer",
        "queues",
        "quiescent",
        "resource_count",
        "resources",
        "retry_timer",
        "unbound",
        "waiters",
    )

    def __init__(self, profile: CapabilityProfile, group: HardGroup, agent: AgentWorkers) -> None:
        resources = profile.resources
        self.profile = profile
        self.group = group
        self.agent = agent
        self.budget = StartBudget()
        self.unbound: OrderedDict[WorkerRecord, None] = OrderedDict()
        """Idle unbound workers, least recently used first."""
        self.quiescent: OrderedDict[WorkerRecord, None] = OrderedDict()
        """Idle workers bound to a quiescent session, least recently used first."""
        self.live = 0
        self.claims = 0
        """Waiters for whom a worker is on its way: starting, or stopping to make room."""
        self.pending_restarts = 0
        """Workers lost to failures (or retired without a replacement) that are to be started again."""
        self.waiters = 0
        """Requests that want this kind, wherever they wait."""
        self.prewarm_target = 0
        """Idle workers to keep warm."""
        self.queues = (ProfileQueue(self, privileged=False), ProfileQueue(self, privileged=True))
        self.condition = ConditionQueue(
            "its profile has all workers that it may have, or starting one has failed and is tried again"
        )
        self.retry_timer: Timer | None = None
        self.prune_timer: Timer | None = None
        self.resource_count = resources.count()
        self.resources = frozenset(
            (field, name) for field in resources.__struct_fields__ for name in getattr(resources, field)
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
        return not (self.live or self.waiters or self.prewarm_target or self.pending_restarts)


def can_reconcile(have: SoftArgs | None, want: SoftArgs) -> bool:
    """Whether ``have`` can be brought to ``want``: a default (None) that was changed cannot be restored.

    Nor can the default model of another provider be asked for. ``have`` None means unknown.
    """
    if have == want:
        return True
    if have is not None and want.model is None and have.provider != want.provider:
        return False
    return all(
        new is not None or (have is not None and old is None)
        for old, new in (
            (have and have.provider, want.provider),
            (have and have.model, want.model),
            (have and have.thinking, want.thinking),
        )
    )


class HoldRecord:
    """One hold in force."""

    __slots__ = ("hold", "privileged", "session", "worker")

    def __init__(self, hold: WorkerHold, session: "SessionRecord", worker: "WorkerRecord", *, privileged: bool) -> None:
        self.hold = hold
        self.session = session
        self.worker = worker
        self.privileged = privileged


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
    """One process, from Spawn to WorkerExited."""

    __slots__ = (
        "age_timer",
        "background",
        "claimed_for",
        "closing_session",
        "failure",
        "id",
        "idle_since",
        "idle_timer",
        "is_restart",
        "modified",
        "ordinary_holds",
        "outdated",
        "preparation",
        "profile_record",
        "proven",
        "ready_at",
        "replaced",
        "replaces",
        "retire_reason",
        "rss",
        "session",
        "soft",
        "spawned_at",
        "state",
        "stop_reason",
        "successor",
        "turns",
        "was_leased",
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
        self.idle_since = now
        """When it was last used."""
        self.idle_timer: Timer | None = None
        self.age_timer: Timer | None = None
        self.turns = 0
        self.rss = 0
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
        "busy",
        "failed",
        "holds",
        "key",
        "last_profile",
        "resume_failures",
        "state",
        "transcript",
        "waiting",
        "worker",
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

    def waiters_in_order(self) -> list[Waiter]:
        """Its queued and blocked waiters, the best first."""
        if len(self.waiting) <= 1:
            return list(self.waiting.values())
        return sorted(
            self.waiting.values(), key=lambda waiter: (not waiter.privileged, waiter.sort_key, waiter.sequence)
        )
