"""What the machine remembers: one mutable record per profile, agent, worker and session. Facts, little behaviour."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from errors import PoolError
from pool.budget import Budget
from pool.states import SessionState, WorkerState
from pool.stimuli import FailureKind, Hold, StopReason
from pool.waiting_list import Gate, Line, Waiter
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile, SoftArgs

if TYPE_CHECKING:
    from wire.timers import Timer


class Agent:
    """All workers of one agent definition: what ``max_per_agent`` limits."""

    __slots__ = ("available", "gate", "kinds", "live", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.live = 0
        self.kinds = 0
        self.available: OrderedDict[Worker, None] = OrderedDict()
        """Available workers, least recently used first."""
        self.gate = Gate(f"agent {name} has all the workers it may have, and none can make room")


class Group:
    """All kinds of one hard signature: the only ones that can stand in for each other."""

    __slots__ = ("free", "kinds", "quiet", "starting")

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.starting: dict[Worker, None] = {}
        self.free = 0
        self.quiet = 0


class Kind:
    """One profile signature with its workers, its lines of waiters and its budget."""

    __slots__ = (
        "agent",
        "budget",
        "covered",
        "free",
        "gate",
        "group",
        "lines",
        "live",
        "owed",
        "profile",
        "prune_timer",
        "quiet",
        "resources",
        "retry_timer",
        "size",
        "target",
        "waiters",
    )

    def __init__(self, profile: CapabilityProfile, group: Group, agent: Agent) -> None:
        resources = profile.resources
        self.profile = profile
        self.group = group
        self.agent = agent
        self.budget = Budget()
        self.free: OrderedDict[Worker, None] = OrderedDict()
        """Idle workers bound to nobody, least recently used first."""
        self.quiet: OrderedDict[Worker, None] = OrderedDict()
        """Idle workers bound to a quiescent session, least recently used first."""
        self.live = 0
        self.covered = 0
        """Waiters for whom a worker is on its way: starting, or stopping to make room."""
        self.owed = 0
        """Workers lost to failures (or retired without a replacement) that are to be started again."""
        self.waiters = 0
        """Requests that want this kind, wherever they wait."""
        self.target = 0
        """Idle workers to keep warm."""
        self.lines = (Line(self, privileged=False), Line(self, privileged=True))
        self.gate = Gate("its profile has all workers that it may have, or starting one has failed and is tried again")
        self.retry_timer: Timer | None = None
        self.prune_timer: Timer | None = None
        self.size = resources.count()
        self.resources = frozenset(
            (field, name) for field in resources.__struct_fields__ for name in getattr(resources, field)
        )

    def serves(self, wanted: "Kind") -> bool:
        """Whether a worker of this kind, freshly reset, can do all that ``wanted`` asks for."""
        return self is wanted or (
            self.group is wanted.group
            and reachable(self.profile.soft, wanted.profile.soft)
            and self.resources >= wanted.resources
        )

    def level(self, wanted: "Kind") -> MatchLevel:
        """How well an unbound worker of this kind fits ``wanted``."""
        if self is wanted:
            return MatchLevel.EXACT
        if not self.serves(wanted):
            return MatchLevel.NONE
        return MatchLevel.HARD if self.profile.resources == wanted.profile.resources else MatchLevel.SOFT_SUPERSET

    @property
    def queued(self) -> int:
        """Waiters in both lines."""
        return self.lines[0].size + self.lines[1].size

    @property
    def idle(self) -> bool:
        """Whether nobody uses this kind now."""
        return not (self.live or self.waiters or self.target or self.owed)


def reachable(have: SoftArgs | None, want: SoftArgs) -> bool:
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


class Held:
    """One hold in force."""

    __slots__ = ("hold", "privileged", "session", "worker")

    def __init__(self, hold: Hold, session: "Session", worker: "Worker", *, privileged: bool) -> None:
        self.hold = hold
        self.session = session
        self.worker = worker
        self.privileged = privileged


class Preparation:
    """A worker is being brought to a session: first the Reset (unless it is bound already), then the Reconcile."""

    __slots__ = ("level", "resetting", "resume_from", "soft", "waiters")

    def __init__(self, soft: SoftArgs, level: MatchLevel, *, resetting: bool, resume_from: str | None) -> None:
        self.soft = soft
        self.level = level
        self.resetting = resetting
        self.resume_from = resume_from
        self.waiters: dict[str, Waiter] = {}


class Worker:
    """One process, from Spawn to WorkerExited."""

    __slots__ = (
        "age_timer",
        "altered",
        "background",
        "closing",
        "covers",
        "failure",
        "id",
        "idle_since",
        "idle_timer",
        "kind",
        "ordinary",
        "outdated",
        "preparation",
        "proven",
        "ready_at",
        "replaced",
        "replaces",
        "retiring",
        "rss",
        "session",
        "soft",
        "spawned_at",
        "state",
        "stop_reason",
        "successor",
        "turns",
        "was_leased",
        "was_owed",
    )

    def __init__(self, name: str, kind: Kind, now: float) -> None:
        self.id = name
        self.kind = kind
        self.state = WorkerState.STARTING
        self.session: Session | None = None
        """Whose conversation it is bound to (or being prepared for, or stopping with)."""
        self.closing: Session | None = None
        """Whose transcript it may still have open from before; closed by the next reset or its exit."""
        self.preparation: Preparation | None = None
        self.soft: SoftArgs | None = kind.profile.soft
        """Soft arguments in force; None = unknown after a failed Reconcile."""
        self.altered = False
        """Whether something else of it was changed than soft arguments, which nobody can undo."""
        self.ordinary = 0
        """Holds and preparations that may not use the reserve."""
        self.background = 0
        self.covers: Kind | None = None
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
        self.retiring: str | None = None
        """Why it is to stop at the next turn boundary."""
        self.outdated = False
        """Whether the settings yield its kind no more."""
        self.successor: Worker | None = None
        self.replaced = False
        """Whether its replacement has been started."""
        self.replaces: Worker | None = None
        self.was_owed = False
        self.was_leased = False
        """Whether it was ever given to a session, whatever came of that."""
        self.stop_reason: StopReason | None = None
        self.failure: FailureKind | None = None

    @property
    def quiescent(self) -> bool:
        """Whether it could be stopped or given to another session without hurting anybody."""
        return not self.in_use and (self.session is None or self.session.quiescent)

    @property
    def in_use(self) -> bool:
        """Whether somebody waits for what it does now; a command in the background may run for ever and is no turn."""
        return self.preparation is not None or (self.session is not None and self.session.in_use)

    @property
    def drifted(self) -> bool:
        """Whether a default it was started with was changed, which no reset restores: no other session may use it."""
        if self.altered:
            return True
        return self.soft is not self.kind.profile.soft and not reachable(self.soft, self.kind.profile.soft)

    def serves(self, wanted: Kind) -> bool:
        """Whether its own session can go on here under the profile ``wanted``."""
        return self.kind.serves(wanted) and reachable(self.soft, wanted.profile.soft)


class Session:
    """One conversation, by key."""

    __slots__ = (
        "busy",
        "failed",
        "holds",
        "key",
        "profile",
        "resume_failures",
        "state",
        "transcript",
        "waiting",
        "worker",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = SessionState.PARKED
        self.worker: Worker | None = None
        """Its worker; while parking, the one that may still have its transcript open."""
        self.holds: dict[str, Hold] = {}
        self.waiting: dict[str, Waiter] = {}
        """Its queued and blocked waiters, by request."""
        self.busy = False
        self.transcript: str | None = None
        self.profile: CapabilityProfile | None = None
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

    def in_order(self) -> list[Waiter]:
        """Its queued and blocked waiters, the best first."""
        if len(self.waiting) <= 1:
            return list(self.waiting.values())
        return sorted(self.waiting.values(), key=lambda waiter: (not waiter.privileged, waiter.key, waiter.sequence))
