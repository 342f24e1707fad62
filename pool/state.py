"""The machine's whole state, and the few moves that keep its counts in step. Everything else decides."""

import heapq
import itertools
import math
import random
from collections.abc import Collection
from typing import Any

from errors import PoolError
from pool import rejections
from pool.available import EVICTION_ORDER, AvailableIndex
from pool.budget import TokenBucket
from pool.places import Places
from pool.queues import ConditionQueue
from pool.records import (
    AgentWorkers,
    HardGroup,
    HoldRecord,
    ProfileRecord,
    SessionRecord,
    Waiter,
    WorkerRecord,
    in_order,
)
from pool.settings import PoolSettings, check_settings
from pool.snapshot import Counters, PoolCounts
from pool.stimuli import Acquire, Action, Notify, Reject
from pool.transitions import SESSION_TRANSITIONS, WORKER_TRANSITIONS, PoolMode, SessionState, WaiterState, WorkerState
from pool.waiting_list import WaitingList
from profiles.profile import CapabilityProfile
from wire.states import transition
from wire.timers import Timers

_INITIAL_SERVICE_INTERVAL = 1.0
"""Seconds between two served waiters, before any was."""
_SMOOTHING = 0.1
_MAX_PINNED_IN_ERROR = 20
"""Sessions kept by background commands that the details of an error list."""
_PARKED = SessionState.PARKED
_NEW, _QUEUED, _PREPARING, _DONE = WaiterState.NEW, WaiterState.QUEUED, WaiterState.PREPARING, WaiterState.DONE


class PoolState:
    """All records by id, the counts over them, and the actions decided so far in this step."""

    def __init__(self, settings: PoolSettings, rng: random.Random, now: float) -> None:
        check_settings(settings)
        self.settings = settings
        self.rng = rng
        self.now = now
        self.mode = PoolMode.RUNNING
        self.actions: list[Action] = []
        self.workers: dict[str, WorkerRecord] = {}
        self.stopping: dict[WorkerRecord, None] = {}
        self.unclaimed_slots: dict[WorkerRecord, None] = {}
        """Those of them whose slot is meant for no waiting profile."""
        self.by_state = dict.fromkeys(WorkerState, 0)
        self.profiles: dict[str, ProfileRecord] = {}
        self.groups: dict[str, HardGroup] = {}
        self.agents: dict[tuple[str, str], AgentWorkers] = {}
        """By name and group."""
        self.places = Places(settings.max)
        self.forgets: set[str] = set()
        """Agents to whom a conversation is lost with its process, also those without a profile now."""
        self.sessions: dict[str, SessionRecord] = {}
        self.transcript_owners: dict[str, str] = {}
        """Whose each transcript is."""
        self.asking: dict[str, str] = {}  # of sessions that wait for a person: the call to decide about
        self.requests: dict[str, Waiter] = {}
        """Every request that has not ended and holds nothing yet."""
        self.holds: dict[str, HoldRecord] = {}
        self.lost_holds: dict[str, int] = {}
        """Holds whose worker died before they were released: request to generation."""
        self.deferred: list[tuple[float, int, Waiter]] = []
        """A heap of blocked waiters that only the reserve keeps from their session's own worker."""
        self.generation = self.sequence = 0
        self.ordinary_workers = 0
        """Workers with a hold that may not use the reserve."""
        self.waiting = WaitingList()
        self.index = AvailableIndex()
        self.pinned: dict[WorkerRecord, None] = {}
        """Workers that only background commands keep for their sessions, the one used longest ago first."""
        self.dedicated: dict[WorkerRecord, None] = {}
        """Workers that keep their session's conversation while they live, the one used longest ago first."""
        self.timers = Timers()
        self.bucket = TokenBucket(settings.spawn_burst, settings.spawn_rate)
        self.counters = Counters()
        self.freed: list[WorkerRecord] = []
        """Workers that have become available in this step."""
        self.touched: dict[ProfileRecord, None] = {}
        """Profiles of whose workers one may have made room, in this step."""
        self.prewarm_targets: tuple[ProfileRecord, ...] = ()
        self.pending_restarts: dict[ProfileRecord, None] = {}
        self.service_interval = _INITIAL_SERVICE_INTERVAL
        self._last_served = now

    # --- records ----------------------------------------------------------------------------------------------------

    def profile_record(self, profile: CapabilityProfile) -> ProfileRecord:
        """The record of ``profile``, made where it is new."""
        kind = self.profiles.get(profile.signature)
        if kind is not None:
            return kind
        group = self.groups.setdefault(profile.hard_signature, HardGroup())
        key = profile.agent, profile.group
        agent = self.agents.get(key)
        if agent is None:
            agent = self.agents[key] = AgentWorkers(profile.agent, self.places.get(profile.group))
            self.places.add(agent)
            agent.forgets = agent.name in self.forgets
        kind = ProfileRecord(profile, group, agent)
        self.profiles[profile.signature] = group.profiles[profile.signature] = kind
        agent.profile_count += 1
        return kind

    def prune(self, kind: ProfileRecord) -> None:
        """Remove a profile that is unused and whose budget holds nothing."""
        if not kind.is_unused or self.profiles.get(kind.profile.signature) is not kind:
            return
        if not kind.budget.is_clean(self.now, self.settings.breaker_window):
            self.timers.cancel(kind.prune_timer)
            again = self.now + max(self.settings.breaker_window, self.settings.backoff_max)
            kind.prune_timer = self.timers.at(again, self.prune, kind)
            return
        self.timers.cancel(kind.retry_timer)
        self.timers.cancel(kind.prune_timer)
        for line in kind.queues:
            ConditionQueue.remove(line)
        for worker in kind.starts_claimed:
            worker.claimed_for = None
            worker.profile_record.starts_unclaimed[worker] = None
        del self.profiles[kind.profile.signature], kind.group.profiles[kind.profile.signature]
        self.pending_restarts.pop(kind, None)
        if not kind.group.profiles:
            del self.groups[kind.profile.hard_signature]
        kind.agent.profile_count -= 1
        if not kind.agent.profile_count:
            del self.agents[kind.agent.name, kind.agent.place.group]
            self.places.drop(kind.agent)

    def session_record(self, key: str) -> SessionRecord:
        """The record of the session, made where it is new."""
        session = self.sessions.get(key)
        if session is None:
            session = self.sessions[key] = SessionRecord(key)
        return session

    def set_transcript(self, session: SessionRecord, transcript: str | None) -> None:
        """From now on that is the session's conversation; None = it has none."""
        if session.transcript is not None and self.transcript_owners.get(session.transcript) == session.key:
            del self.transcript_owners[session.transcript]
        session.transcript = transcript
        if transcript is not None:
            self.transcript_owners[transcript] = session.key

    def forget_if_empty(self, session: SessionRecord) -> None:
        """Drop a session of which nothing would be lost."""
        if session.forgettable:
            self.sessions.pop(session.key, None)

    def set_forgets(self, name: str, *, forgets: bool) -> None:
        """Whether a conversation is lost to that agent with its process."""
        (self.forgets.add if forgets else self.forgets.discard)(name)
        for agent in self.agents.values():
            if agent.name == name:
                agent.forgets = forgets

    # --- moves ------------------------------------------------------------------------------------------------------

    def transition_worker(self, worker: WorkerRecord, state: WorkerState) -> None:
        """Take the worker to ``state``."""
        old = worker.state
        worker.state = transition(WORKER_TRANSITIONS, old, state)
        self.by_state[old] -= 1
        self.by_state[state] += 1

    def begin_stop(self, worker: WorkerRecord) -> None:
        """The worker stops, and its slot is meant for no profile yet."""
        self.transition_worker(worker, WorkerState.STOPPING)
        self.stopping[worker] = self.unclaimed_slots[worker] = None
        worker.profile_record.agent.unclaimed_slots[worker] = None

    def claim_slot(self, worker: WorkerRecord, kind: ProfileRecord) -> None:
        """The slot of this stopping worker is meant for ``kind``."""
        del self.unclaimed_slots[worker], worker.profile_record.agent.unclaimed_slots[worker]
        worker.claimed_for = kind
        kind.claims += 1

    def remove_worker(self, worker: WorkerRecord) -> None:
        """The worker is gone, and its slot is free."""
        kind = worker.profile_record
        self.transition_worker(worker, WorkerState.DEAD)
        self.by_state[WorkerState.DEAD] -= 1
        for workers in (self.stopping, self.unclaimed_slots, kind.agent.unclaimed_slots):
            workers.pop(worker, None)
        del self.workers[worker.id], kind.workers[worker]
        kind.agent.live -= 1
        kind.agent.place.live -= 1

    def transition_session(self, session: SessionRecord, state: SessionState) -> None:
        """Take the session to ``state``."""
        session.state = transition(SESSION_TRANSITIONS, session.state, state)

    def notify(self, event: str, **data: Any) -> None:
        """Report an event to the listener."""
        self.actions.append(Notify(event, data))

    # --- the reserve ------------------------------------------------------------------------------------------------

    @property
    def quota_open(self) -> bool:
        """Whether one more worker may be held by requests that may not use the reserve."""
        reserve = self.settings.reserve
        return not reserve or self.ordinary_workers < max(1, self.places.limit - reserve)

    def reserve_allows(self, worker: WorkerRecord, waiter: Waiter) -> bool:
        """Whether the reserve allows ``waiter`` this worker."""
        return waiter.privileged or worker.ordinary_holds > 0 or self.quota_open

    def count_ordinary(self, worker: WorkerRecord, by: int, *, privileged: bool) -> None:
        """Count one hold (or preparation) more or less on the worker."""
        if privileged:
            return
        before = worker.ordinary_holds
        worker.ordinary_holds = before + by
        self.ordinary_workers += (worker.ordinary_holds > 0) - (before > 0)

    def defer(self, waiter: Waiter) -> None:
        """Remember that ``waiter`` can go on as soon as the reserve allows."""
        if not waiter.deferred:
            waiter.deferred = True
            heapq.heappush(self.deferred, (waiter.sort_key, waiter.sequence, waiter))

    def next_deferred(self) -> Waiter | None:
        """The best of them, left in its place."""
        while self.deferred and self.deferred[0][2].state is not WaiterState.BLOCKED:
            heapq.heappop(self.deferred)[2].deferred = False
        return self.deferred[0][2] if self.deferred else None

    def drop_deferred(self, waiter: Waiter) -> None:
        """Take the best of them out."""
        if self.deferred and self.deferred[0][2] is waiter:
            heapq.heappop(self.deferred)
            waiter.deferred = False

    # --- waiters ----------------------------------------------------------------------------------------------------

    def new_waiter(self, acquire: Acquire) -> Waiter:
        """The waiter of a request that has just come in."""
        self.sequence += 1
        settings = self.settings
        waiter = Waiter(
            acquire, self.session_record(acquire.session), self.profile_record(acquire.profile), self.now, self.sequence
        )
        waiter.deadline = self.now + settings.waiting_timeout if acquire.deadline is None else acquire.deadline
        if not acquire.nested:
            waiter.sort_key = self.now - acquire.priority * settings.age_step
        return waiter

    def register(self, waiter: Waiter) -> None:
        """From now on the request is known, and ends by its deadline."""
        if waiter.state is _NEW:
            self.requests[waiter.request] = waiter
            waiter.profile_record.waiters += 1
            if waiter.deadline < math.inf:
                waiter.timer = self.timers.at(waiter.deadline, self.expire, waiter)

    def enqueue(self, waiter: Waiter, state: WaiterState) -> None:
        """Put the waiter on the waiting list, QUEUED or BLOCKED."""
        self.register(waiter)
        if not waiter.was_enqueued and waiter.state is _NEW:
            waiter.was_enqueued = True
            self.counters.enqueued += 1
        waiter.session.waiting[waiter.request] = waiter
        self.waiting.transition(waiter, state)

    def finish(self, waiter: Waiter) -> None:
        """The request has ended, one way or another."""
        old = waiter.state
        session = waiter.session
        self.waiting.transition(waiter, _DONE)
        if old is not _NEW:
            del self.requests[waiter.request]
            waiter.profile_record.waiters -= 1
            self.timers.cancel(waiter.timer)
        if old is _PREPARING:
            self.remove_from_preparation(waiter)
        elif old is not _NEW:
            del session.waiting[waiter.request]
            if old is _QUEUED:
                self.requeue(session)
        if session.state is _PARKED:
            self.forget_if_empty(session)
        if not waiter.profile_record.workers:
            self.prune(waiter.profile_record)

    def remove_from_preparation(self, waiter: Waiter) -> None:
        """Take the waiter out of the preparation it takes part in."""
        worker = waiter.session.worker
        if worker is not None and worker.preparation is not None:
            del worker.preparation.waiters[waiter.request]
            self.count_ordinary(worker, -1, privileged=waiter.privileged)

    def requeue(self, session: SessionRecord) -> None:
        """Let the best waiter of a parked session stand in its line; the others wait behind it."""
        if session.state is not _PARKED:
            return
        waiters = in_order(session.waiting)
        if not waiters:
            self.forget_if_empty(session)
            return
        for other in waiters[1:]:
            if other.state is WaiterState.QUEUED:
                self.waiting.transition(other, WaiterState.BLOCKED)
        if waiters[0].state is WaiterState.BLOCKED:
            self.waiting.transition(waiters[0], WaiterState.QUEUED)

    def reject(self, waiter: Waiter, error: PoolError) -> None:
        """End the request without a worker."""
        self.finish(waiter)
        self.counters.refused += 1
        self.actions.append(Reject(waiter.request, error))

    def expire(self, waiter: Waiter) -> None:
        """End the request: its deadline has passed."""
        error = rejections.timed_out(self.counts(), waiter, self.pinned_sessions(), self.asking)
        self.finish(waiter)
        self.counters.expired += 1
        self.actions.append(Reject(waiter.request, error))

    def excess_pinned(self, kind: ProfileRecord, gate: ConditionQueue) -> WorkerRecord | None:
        """The pinned worker to stop so that a line of ``kind`` can leave ``gate``; None where they are within bounds.

        The one used longest ago, of all or, where a limit of its own keeps the line, of the agent or the profile.
        """
        settings = self.settings
        pinned: Collection[WorkerRecord] = self.pinned
        most = self.most_pinned
        if gate is kind.agent.condition:
            pinned = [worker for worker in pinned if worker.profile_record.agent is kind.agent]
            most = settings.max_per_agent - 1
        elif gate is kind.agent.place.condition:
            pinned = [worker for worker in pinned if worker.profile_record.agent.place is kind.agent.place]
            most = int(kind.agent.place.slots) - 1
        elif gate is kind.condition:
            pinned = [worker for worker in pinned if worker.profile_record is kind]
            most = settings.max_per_profile - 1
        return next(EVICTION_ORDER(pinned)) if 0 <= most < len(pinned) else None

    @property
    def most_pinned(self) -> int:
        """Workers that background commands may keep; one is left besides those that keep their conversations."""
        most = self.places.limit - 1
        return min(self.settings.max_pinned or most, most - len(self.dedicated))

    def record_service_interval(self) -> None:
        """Learn how often waiters are served, for ``retry_after``."""
        self.counters.served += 1
        gap = self.now - self._last_served
        self._last_served = self.now
        self.service_interval += _SMOOTHING * (gap - self.service_interval)

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def retry_after(self) -> float:
        """Seconds until a place on the waiting list is likely to be free."""
        return min(max(self.service_interval, 0.1), max(self.settings.waiting_timeout, 0.1))

    @property
    def claimed_slots(self) -> int:
        """Stopping workers whose slot is meant for a waiting profile."""
        return len(self.stopping) - len(self.unclaimed_slots)

    def pinned_sessions(self) -> rejections.KeepingSessions:
        """The sessions for which workers are kept by background commands alone, the one used longest ago first."""
        longest_ago = itertools.islice(self.pinned, _MAX_PINNED_IN_ERROR)
        named = tuple([worker.session.key for worker in longest_ago if worker.session is not None])
        return rejections.KeepingSessions(named, len(self.pinned))

    def counts(self) -> PoolCounts:
        """The pool in seven numbers."""
        by_state = self.by_state
        return PoolCounts(
            total=len(self.workers),
            idle=by_state[WorkerState.IDLE],
            leased=by_state[WorkerState.LEASED],
            starting=by_state[WorkerState.STARTING],
            stopping=by_state[WorkerState.STOPPING],
            waiting=len(self.requests),
            max=self.places.limit,
        )
