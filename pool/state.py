"""The machine's whole state, and the few moves that keep its counts in step. Everything else decides."""

import heapq
import math
import random
from typing import Any

from errors import PoolError, UsageError
from pool import rejections
from pool.available import AvailableIndex
from pool.budget import TokenBucket
from pool.records import Agent, Group, Held, Kind, Session, Worker
from pool.settings import PoolSettings
from pool.snapshot import Counters, Figures
from pool.states import SESSION_MOVES, WORKER_MOVES, Mode, SessionState, WaiterState, WorkerState, checked
from pool.stimuli import Acquire, Action, Notify, Reject
from pool.waiting_list import Gate, Waiter, WaitingList
from profiles.profile import CapabilityProfile
from wire.timers import Timers

_FIRST_GUESS = 1.0
"""Seconds between two served waiters, before any was."""
_SMOOTHING = 0.1

_NEVER_ZERO = (
    "start_timeout",
    "reset_timeout",
    "ping_interval_idle",
    "ping_interval_busy",
    "ping_timeout",
    "turn_stall",
    "maintenance_interval",
)
"""Times after which something is looked at or given up: at zero that would be always."""


def check_settings(settings: PoolSettings) -> None:
    """Refuse limits that contradict each other; raises UsageError that names them."""
    problems = (
        (settings.max < 1, f"max = {settings.max} allows no worker at all"),
        (settings.min > settings.max, f"min = {settings.min} is above max = {settings.max}"),
        (
            settings.max_pinned >= settings.max,
            f"max_pinned = {settings.max_pinned} lets background commands keep all of max = {settings.max}",
        ),
        (settings.reserve >= settings.max, f"reserve = {settings.reserve} leaves nothing of max = {settings.max}"),
        (settings.spawn_burst < 1, f"spawn_burst = {settings.spawn_burst} allows no start at all"),
        (settings.spawn_rate <= 0, f"spawn_rate = {settings.spawn_rate} allows no start after the burst"),
        (settings.breaker_failures < 1, f"breaker_failures = {settings.breaker_failures} is below 1"),
    )
    for wrong, text in problems:
        if wrong:
            raise UsageError(text)
    for name in _NEVER_ZERO:
        if getattr(settings, name) <= 0:
            raise UsageError(f"{name} = {getattr(settings, name)!r} must be more than 0")


class State:
    """All records by id, the counts over them, and the actions decided so far in this step."""

    def __init__(self, settings: PoolSettings, rng: random.Random, now: float) -> None:
        check_settings(settings)
        self.settings = settings
        self.rng = rng
        self.now = now
        self.mode = Mode.RUNNING
        self.actions: list[Action] = []
        self.workers: dict[str, Worker] = {}
        self.stopping: dict[Worker, None] = {}
        self.claims = 0
        """Stopping workers whose slot is meant for somebody."""
        self.by_state = dict.fromkeys(WorkerState, 0)
        self.kinds: dict[str, Kind] = {}
        self.groups: dict[str, Group] = {}
        self.agents: dict[str, Agent] = {}
        self.sessions: dict[str, Session] = {}
        self.owners: dict[str, str] = {}
        """Whose each transcript is."""
        self.requests: dict[str, Waiter] = {}
        """Every request that has not ended and holds nothing yet."""
        self.holds: dict[str, Held] = {}
        self.lost: dict[str, int] = {}
        """Holds whose worker died before they were released: request to generation."""
        self.gated: list[tuple[float, int, Waiter]] = []
        """A heap of blocked waiters that only the reserve keeps from their session's own worker."""
        self.generation = 0
        self.sequence = 0
        self.ordinary = 0
        """Workers with a hold that may not use the reserve."""
        self.waiting = WaitingList()
        self.index = AvailableIndex()
        self.pinned: dict[Worker, None] = {}
        """Workers that only background commands keep for their sessions, the one used longest ago first."""
        self.timers = Timers()
        self.bucket = TokenBucket(settings.spawn_burst, settings.spawn_rate)
        self.counters = Counters()
        self.freed: list[Worker] = []
        """Workers that have become available in this step."""
        self.touched_agents: dict[Agent, None] = {}
        self.targets: tuple[Kind, ...] = ()
        self.owed: dict[Kind, None] = {}
        self.served_every = _FIRST_GUESS
        self._last_served = now

    # --- records ----------------------------------------------------------------------------------------------------

    def kind_of(self, profile: CapabilityProfile) -> Kind:
        """The record of ``profile``, made where it is new."""
        kind = self.kinds.get(profile.signature)
        if kind is not None:
            return kind
        group = self.groups.setdefault(profile.hard_signature, Group())
        agent = self.agents.get(profile.agent)
        if agent is None:
            agent = self.agents[profile.agent] = Agent(profile.agent)
        kind = Kind(profile, group, agent)
        self.kinds[profile.signature] = group.kinds[profile.signature] = kind
        agent.kinds += 1
        return kind

    def prune(self, kind: Kind) -> None:
        """Forget a kind that nobody uses and whose budget has nothing to remember."""
        if not kind.idle or self.kinds.get(kind.profile.signature) is not kind:
            return
        if not kind.budget.clean(self.now, self.settings.breaker_window):
            self.timers.cancel(kind.prune_timer)
            again = self.now + max(self.settings.breaker_window, self.settings.backoff_max)
            kind.prune_timer = self.timers.at(again, self.prune, kind)
            return
        self.timers.cancel(kind.retry_timer)
        self.timers.cancel(kind.prune_timer)
        for line in kind.lines:
            Gate.leave(line)
        del self.kinds[kind.profile.signature], kind.group.kinds[kind.profile.signature]
        self.owed.pop(kind, None)
        if not kind.group.kinds:
            del self.groups[kind.profile.hard_signature]
        kind.agent.kinds -= 1
        if not kind.agent.kinds:
            del self.agents[kind.agent.name]

    def session_of(self, key: str) -> Session:
        """The record of the session, made where it is new."""
        session = self.sessions.get(key)
        if session is None:
            session = self.sessions[key] = Session(key)
        return session

    def set_transcript(self, session: Session, transcript: str | None) -> None:
        """From now on that is the session's conversation; None = it has none."""
        if session.transcript is not None and self.owners.get(session.transcript) == session.key:
            del self.owners[session.transcript]
        session.transcript = transcript
        if transcript is not None:
            self.owners[transcript] = session.key

    def forget_if_empty(self, session: Session) -> None:
        """Drop a session of which nothing would be lost."""
        if session.forgettable:
            self.sessions.pop(session.key, None)

    # --- moves ------------------------------------------------------------------------------------------------------

    def move_worker(self, worker: Worker, state: WorkerState) -> None:
        """Take the worker to ``state``."""
        old = worker.state
        worker.state = checked(WORKER_MOVES, old, state)
        self.by_state[old] -= 1
        self.by_state[state] += 1

    def move_session(self, session: Session, state: SessionState) -> None:
        """Take the session to ``state``."""
        session.state = checked(SESSION_MOVES, session.state, state)

    def notify(self, event: str, **data: Any) -> None:
        """Tell whoever listens."""
        self.actions.append(Notify(event, data))

    # --- the reserve ------------------------------------------------------------------------------------------------

    @property
    def quota_open(self) -> bool:
        """Whether one more worker may be held by requests that may not use the reserve."""
        reserve = self.settings.reserve
        return not reserve or self.ordinary < self.settings.max - reserve

    def may_take(self, worker: Worker, waiter: Waiter) -> bool:
        """Whether the reserve allows ``waiter`` this worker."""
        return waiter.privileged or worker.ordinary > 0 or self.quota_open

    def charge(self, worker: Worker, by: int, *, privileged: bool) -> None:
        """Count one hold (or preparation) more or less on the worker."""
        if privileged:
            return
        before = worker.ordinary
        worker.ordinary = before + by
        self.ordinary += (worker.ordinary > 0) - (before > 0)

    def gate_off(self, waiter: Waiter) -> None:
        """Remember that ``waiter`` can go on as soon as the reserve allows."""
        if not waiter.gated:
            waiter.gated = True
            heapq.heappush(self.gated, (waiter.key, waiter.sequence, waiter))

    def next_gated(self) -> Waiter | None:
        """The best of them, left in its place."""
        while self.gated and self.gated[0][2].state is not WaiterState.BLOCKED:
            heapq.heappop(self.gated)[2].gated = False
        return self.gated[0][2] if self.gated else None

    def drop_gated(self, waiter: Waiter) -> None:
        """Take the best of them out."""
        if self.gated and self.gated[0][2] is waiter:
            heapq.heappop(self.gated)
            waiter.gated = False

    # --- waiters ----------------------------------------------------------------------------------------------------

    def new_waiter(self, acquire: Acquire) -> Waiter:
        """The waiter of a request that has just come in."""
        self.sequence += 1
        settings = self.settings
        waiter = Waiter(
            acquire, self.session_of(acquire.session), self.kind_of(acquire.profile), self.now, self.sequence
        )
        waiter.deadline = self.now + settings.waiting_timeout if acquire.deadline is None else acquire.deadline
        if not acquire.nested:
            waiter.key = self.now - acquire.priority * settings.age_step
        return waiter

    def register(self, waiter: Waiter) -> None:
        """From now on the request is known, and ends by its deadline."""
        if waiter.state is WaiterState.NEW:
            self.requests[waiter.request] = waiter
            waiter.kind.waiters += 1
            if waiter.deadline < math.inf:
                waiter.timer = self.timers.at(waiter.deadline, self.expire, waiter)

    def wait(self, waiter: Waiter, state: WaiterState) -> None:
        """Put the waiter on the waiting list, QUEUED or BLOCKED."""
        self.register(waiter)
        if not waiter.waited and waiter.state is WaiterState.NEW:
            waiter.waited = True
            self.counters.enqueued += 1
        waiter.session.waiting[waiter.request] = waiter
        self.waiting.move(waiter, state)

    def finish(self, waiter: Waiter) -> None:
        """The request has ended, one way or another."""
        old = waiter.state
        session = waiter.session
        self.waiting.move(waiter, WaiterState.DONE)
        if old is not WaiterState.NEW:
            del self.requests[waiter.request]
            waiter.kind.waiters -= 1
            self.timers.cancel(waiter.timer)
        if old is WaiterState.PREPARING:
            self.leave_preparation(waiter)
        elif old is not WaiterState.NEW:
            del session.waiting[waiter.request]
            if old is WaiterState.QUEUED:
                self.requeue(session)
        if session.forgettable:
            self.forget_if_empty(session)
        if waiter.kind.idle:
            self.prune(waiter.kind)

    def leave_preparation(self, waiter: Waiter) -> None:
        """Take the waiter out of the preparation it takes part in."""
        worker = waiter.session.worker
        if worker is not None and worker.preparation is not None:
            del worker.preparation.waiters[waiter.request]
            self.charge(worker, -1, privileged=waiter.privileged)

    def requeue(self, session: Session) -> None:
        """Let the best waiter of a parked session stand in its line; the others wait behind it."""
        if session.state is not SessionState.PARKED:
            return
        waiters = session.in_order()
        if not waiters:
            self.forget_if_empty(session)
            return
        for other in waiters[1:]:
            if other.state is WaiterState.QUEUED:
                self.waiting.move(other, WaiterState.BLOCKED)
        if waiters[0].state is WaiterState.BLOCKED:
            self.waiting.move(waiters[0], WaiterState.QUEUED)

    def reject(self, waiter: Waiter, error: PoolError) -> None:
        """End the request without a worker."""
        self.finish(waiter)
        self.counters.refused += 1
        self.actions.append(Reject(waiter.request, error))

    def expire(self, waiter: Waiter) -> None:
        """End the request: its deadline has passed."""
        error = rejections.timed_out(self.figures(), waiter, self.pins())
        self.finish(waiter)
        self.counters.expired += 1
        self.actions.append(Reject(waiter.request, error))

    def one_pinned_too_many(self, kind: Kind, gate: Gate) -> Worker | None:
        """The pinned worker to stop so that a line of ``kind`` can leave ``gate``; None where they are within bounds.

        The one used longest ago, of all or, where a limit of its own keeps the line, of the agent or the profile.
        """
        settings = self.settings
        pinned, most = list(self.pinned), settings.max_pinned or settings.max - 1
        if gate is kind.agent.gate:
            pinned, most = [worker for worker in pinned if worker.kind.agent is kind.agent], settings.max_per_agent - 1
        elif gate is kind.gate:
            pinned, most = [worker for worker in pinned if worker.kind is kind], settings.max_per_profile - 1
        return pinned[0] if 0 <= most < len(pinned) else None

    def was_served(self) -> None:
        """Learn how often waiters are served, for ``retry_after``."""
        self.counters.served += 1
        gap = self.now - self._last_served
        self._last_served = self.now
        self.served_every += _SMOOTHING * (gap - self.served_every)

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def retry_after(self) -> float:
        """Seconds until a place on the waiting list is likely to be free."""
        return min(max(self.served_every, 0.1), max(self.settings.waiting_timeout, 0.1))

    def pins(self) -> list[str]:
        """The sessions for which workers are kept by background commands alone, the one used longest ago first."""
        return [worker.session.key for worker in self.pinned if worker.session is not None]

    def figures(self) -> Figures:
        """The pool in seven numbers."""
        by_state = self.by_state
        return Figures(
            total=len(self.workers),
            idle=by_state[WorkerState.IDLE],
            leased=by_state[WorkerState.LEASED],
            starting=by_state[WorkerState.STARTING],
            stopping=by_state[WorkerState.STOPPING],
            waiting=len(self.requests),
            max=self.settings.max,
        )
