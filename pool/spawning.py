"""Which workers are started, for whom, and what happens when a start fails.

A spawn is demand, not ownership: a starting worker *covers* one waiter of a kind, so that no second one is started for
the same waiter, but the first that fits gets it. A stopping worker covers a waiter in the same way: its slot is meant
for a spawn of that kind.
"""

from collections.abc import Iterator

from errors import PoolError
from pool.budget import BreakerState
from pool.queues import ConditionQueue
from pool.records import ProfileRecord, WorkerRecord
from pool.state import PoolState
from pool.stimuli import Capacity, FailureKind, Spawn
from pool.transitions import PoolMode, SessionState, WaiterState, WorkerState


class Spawner:
    """The supply of new workers: limits, budgets, covers."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self.spawned = 0
        """How many worker ids have been given out: ``w1`` ... ``w<spawned>``."""
        self._bucket_armed_for = float("-inf")
        self._starters = 1
        self._start_rate: float | None = None

    # --- may we -----------------------------------------------------------------------------------------------------

    def blocking_condition(self, kind: ProfileRecord) -> ConditionQueue | None:
        """What keeps a worker of ``kind`` from being started now; None if nothing does."""
        gate = self._blocking_condition_at(kind, self._state.now)
        if gate is self._state.waiting.tokens:
            self.arm_token_timer()
        return gate

    def has_room(self, kind: ProfileRecord, now: float) -> bool:
        """Whether a worker of ``kind`` could be started at this time without taking anything from a waiter."""
        state = self._state
        return self._blocking_condition_at(kind, now) is None and state.bucket.next_at(state.claimed_slots) <= now

    def _blocking_condition_at(self, kind: ProfileRecord, now: float) -> ConditionQueue | None:
        state = self._state
        settings = state.settings
        if not kind.budget.may_start(now):
            return kind.condition
        if settings.max_per_profile and len(kind.workers) >= settings.max_per_profile:
            return kind.condition
        if settings.max_per_agent and kind.agent.live >= settings.max_per_agent:
            return kind.agent.condition
        place = kind.agent.place
        if place.live >= place.slots:
            return place.condition
        if len(state.workers) >= state.places.limit:
            return state.waiting.pool_full
        return None if state.bucket.has_token(now) else state.waiting.tokens

    def demand(self, kind: ProfileRecord) -> int:
        """Sessions that wait for a worker of this kind and could be given one."""
        ordinary, privileged = kind.queues
        return privileged.size + (ordinary.size if self._state.quota_open else 0)

    def has_spare_token(self) -> bool:
        """Whether a start is allowed beside those for which slots are being made; if not, wake up when one is."""
        state = self._state
        if state.bucket.next_at(state.claimed_slots) <= state.now:
            return True
        self.arm_token_timer(state.claimed_slots)
        return False

    def arm_token_timer(self, promised: int = 0) -> None:
        """Wake up when the bucket has a token again, beside those that are promised."""
        state = self._state
        due = state.bucket.next_at(promised)
        if due > state.now and due != self._bucket_armed_for:
            self._bucket_armed_for = due
            state.timers.at(due, _no_op, None)

    def set_rate(self, capacity: Capacity | None = None) -> None:
        """Take the rate of starts from the settings, for as many nodes as start workers (None: as many as before)."""
        state, settings = self._state, self._state.settings
        if capacity is not None:
            self._starters, self._start_rate = max(1, capacity.starters), capacity.start_rate
        burst, rate = settings.spawn_burst * self._starters, settings.spawn_rate * self._starters
        if self._start_rate is not None:
            burst, rate = min(burst, max(settings.spawn_burst, int(self._start_rate))), min(rate, self._start_rate)
        state.bucket.set_limits(burst, rate)
        if state.waiting.tokens.count:
            self.arm_token_timer()

    # --- starting ---------------------------------------------------------------------------------------------------

    def spawn(
        self,
        kind: ProfileRecord,
        *,
        covers: ProfileRecord | None = None,
        replaces: WorkerRecord | None = None,
        near: str = "",
    ) -> WorkerRecord:
        """Start a worker of ``kind``, on the node ``near`` if it can be; only where ``blocking_condition`` is None."""
        state = self._state
        self.spawned += 1
        worker = WorkerRecord(f"w{self.spawned}", kind, state.now)
        state.workers[worker.id] = worker
        state.by_state[WorkerState.STARTING] += 1
        kind.workers[worker] = None
        kind.agent.live += 1
        kind.agent.place.live += 1
        kind.group.starting += 1
        if covers is None:
            kind.starts_unclaimed[worker] = None
        else:
            self._claim_start(worker, covers)
        if replaces is not None:
            worker.replaces, replaces.successor, replaces.replaced = replaces, worker, True
        elif kind.pending_restarts:
            worker.is_restart = True
            self.add_restarts(kind, -1)
        state.bucket.consume(state.now)
        kind.budget.start_begun()
        state.counters.spawned += 1
        state.actions.append(Spawn(worker.id, kind.profile, near))
        state.notify("worker_spawned", worker=worker.id, profile=kind.profile.short)
        return worker

    def finish_start(self, worker: WorkerRecord) -> None:
        """The worker is no longer starting, for better or worse: whom it covered needs another one."""
        worker.profile_record.group.starting -= 1
        worker.profile_record.starts_unclaimed.pop(worker, None)
        self.release_claim(worker)

    def release_claim(self, worker: WorkerRecord) -> None:
        """The worker is no longer meant for a particular profile."""
        kind = worker.claimed_for
        if kind is None:
            return
        worker.claimed_for = None
        kind.claims -= 1
        kind.starts_claimed.pop(worker, None)
        self._state.waiting.wake(kind)
        self._state.prune(kind)

    def reassign_start(self, kind: ProfileRecord) -> bool:
        """Let a starting worker that fits, and whose own waiter was served elsewhere, cover a waiter of ``kind``."""
        worker = next(self._spare_starts(kind), None) if kind.group.starting else None
        if worker is None:
            return False
        covered = worker.claimed_for
        if covered is None:
            del worker.profile_record.starts_unclaimed[worker]
        else:
            del covered.starts_claimed[worker]
            covered.claims -= 1
            self._state.waiting.wake(covered)
        self._claim_start(worker, kind)
        return True

    def _spare_starts(self, kind: ProfileRecord) -> Iterator[WorkerRecord]:
        """Starting workers that fit ``kind`` and are meant for no waiter; O(kinds of the hard group) to the first."""
        for other in kind.group.profiles.values():
            if other.starts_unclaimed and other.serves(kind):
                yield from other.starts_unclaimed
            if other is not kind and other.starts_claimed and other.claims > self.demand(other):
                yield from (worker for worker in other.starts_claimed if worker.profile_record.serves(kind))

    def _claim_start(self, worker: WorkerRecord, kind: ProfileRecord) -> None:
        worker.claimed_for = kind
        kind.claims += 1
        kind.starts_claimed[worker] = None

    @property
    def slots_after_stops(self) -> int:
        """Processes that may be started once every stopping one is gone."""
        state = self._state
        return state.places.limit - (len(state.workers) - len(state.stopping))

    # --- budgets ----------------------------------------------------------------------------------------------------

    def start_succeeded(self, worker: WorkerRecord) -> None:
        """A start succeeded."""
        kind = worker.profile_record
        self.finish_start(worker)
        if kind.budget.start_succeeded():
            self._state.timers.cancel(kind.retry_timer)
            self._state.notify("breaker_closed", profile=kind.profile.short)
            self._state.waiting.wake(kind)

    def record_failure(self, worker: WorkerRecord, error: PoolError) -> None:
        """A start failed, or a worker died before it was of any use: back off, or open the breaker.

        Where no worker of the kind ever worked, and this one has refused to start, another would do the same: who waits
        learns it at once.
        """
        state, kind = self._state, worker.profile_record
        budget = kind.budget
        opened = budget.record_failure(state.now, error, state.settings, state.rng)
        if opened:
            state.timers.cancel(kind.retry_timer)
            kind.retry_timer = state.timers.at(budget.opened_until, self._half_open, kind)
            self.add_restarts(kind, -kind.pending_restarts)
            state.notify("breaker_opened", profile=kind.profile.short, error=str(error))
        elif not budget.is_open:
            state.timers.cancel(kind.retry_timer)
            kind.retry_timer = state.timers.at(budget.retry_at, state.waiting.wake, kind)
        state.waiting.wake(kind)
        if worker.failure is FailureKind.START and not budget.is_proven and _is_permanent_failure(error):
            self._reject_waiters(kind, error)

    def _reject_waiters(self, kind: ProfileRecord, error: PoolError) -> None:
        state = self._state
        waiting = [
            waiter for waiter in state.requests.values() if waiter.profile_record is kind and not waiter.room_only
        ]
        for waiter in waiting:
            if waiter.state is not WaiterState.PREPARING and waiter.session.state is SessionState.PARKED:
                state.reject(waiter, error)

    def start_abandoned(self, worker: WorkerRecord) -> None:
        """A start was stopped by us: its trial, if it was one, may be made by another."""
        worker.profile_record.budget.start_abandoned()
        self._state.waiting.wake(worker.profile_record)

    def require_restart(self, kind: ProfileRecord) -> None:
        """Start one more worker of ``kind`` when there is room: capacity was lost."""
        if self._state.mode in (PoolMode.RUNNING, PoolMode.PAUSED) and not kind.budget.is_open:
            self.add_restarts(kind, 1)

    def cancel_restarts(self) -> None:
        """Nothing is owed any more: the pool is full."""
        for kind in list(self._state.pending_restarts):
            self.add_restarts(kind, -kind.pending_restarts)
            self._state.prune(kind)

    def add_restarts(self, kind: ProfileRecord, more: int) -> None:
        """Owe ``more`` starts of this kind, fewer where negative."""
        kind.pending_restarts += more
        if kind.pending_restarts:
            self._state.pending_restarts[kind] = None
        else:
            self._state.pending_restarts.pop(kind, None)

    def _half_open(self, kind: ProfileRecord) -> None:
        kind.retry_timer = None
        if kind.budget.state is BreakerState.OPEN:
            kind.budget.half_open()
            self._state.notify("breaker_half_open", profile=kind.profile.short)
            self._state.waiting.wake(kind)


def _no_op(_: object) -> None:
    """The wake-up itself is the point: the scheduler runs after it."""


def _is_permanent_failure(error: PoolError) -> bool:
    """Whether a program has itself ended its start, with an exit code or with words; a signal or a timeout may pass."""
    return error.details.get("exit_code") is not None or bool(error.details.get("refused"))
