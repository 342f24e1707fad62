"""Which workers are started, for whom, and what happens when a start fails.

A spawn is demand, not ownership: a starting worker *covers* one waiter of a kind, so that no second one is started for
the same waiter, but whoever fits first gets it. A stopping worker covers a waiter in the same way: its slot is meant
for a spawn of that kind.
"""

from errors import PoolError
from pool.budget import BreakerState
from pool.records import Kind, Worker
from pool.state import State
from pool.states import Mode, SessionState, WaiterState, WorkerState
from pool.stimuli import FailureKind, Spawn
from pool.waiting_list import Gate


class Starts:
    """The supply of new workers: limits, budgets, covers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = 0
        self._bucket_armed_for = float("-inf")

    @property
    def spawned(self) -> int:
        """How many worker ids have been given out: ``w1`` ... ``w<spawned>``."""
        return self._count

    # --- may we -----------------------------------------------------------------------------------------------------

    def gate_for(self, kind: Kind) -> Gate | None:
        """What keeps a worker of ``kind`` from being started now; None if nothing does."""
        gate = self._gate_at(kind, self._state.now)
        if gate is self._state.waiting.tokens:
            self.await_token()
        return gate

    def has_room(self, kind: Kind, now: float) -> bool:
        """Whether a worker of ``kind`` could be started at this time without taking anything from a waiter."""
        state = self._state
        return self._gate_at(kind, now) is None and state.bucket.next_at(state.claims) <= now

    def _gate_at(self, kind: Kind, now: float) -> Gate | None:
        state = self._state
        settings = state.settings
        if not kind.budget.may_start(now):
            return kind.gate
        if settings.max_per_profile and kind.live >= settings.max_per_profile:
            return kind.gate
        if settings.max_per_agent and kind.agent.live >= settings.max_per_agent:
            return kind.agent.gate
        if len(state.workers) >= settings.max:
            return state.waiting.full
        return None if state.bucket.ready(now) else state.waiting.tokens

    def demand(self, kind: Kind) -> int:
        """Sessions that wait for a worker of this kind and could be given one."""
        ordinary, privileged = kind.lines
        return privileged.size + (ordinary.size if self._state.quota_open else 0)

    def has_token_to_spare(self) -> bool:
        """Whether a start is allowed beside those for which slots are being made; if not, wake up when one is."""
        state = self._state
        if state.bucket.next_at(state.claims) <= state.now:
            return True
        self.await_token(state.claims)
        return False

    def await_token(self, promised: int = 0) -> None:
        """Wake up when the bucket has a token again, beside those that are promised."""
        state = self._state
        due = state.bucket.next_at(promised)
        if due > state.now and due != self._bucket_armed_for:
            self._bucket_armed_for = due
            state.timers.at(due, _nothing, None)

    # --- starting ---------------------------------------------------------------------------------------------------

    def spawn(self, kind: Kind, *, covers: Kind | None = None, replaces: Worker | None = None) -> Worker:
        """Start a worker of ``kind``; only where ``gate_for`` says None."""
        state = self._state
        self._count += 1
        worker = Worker(f"w{self._count}", kind, state.now)
        state.workers[worker.id] = worker
        state.by_state[WorkerState.STARTING] += 1
        kind.live += 1
        kind.agent.live += 1
        kind.group.starting[worker] = None
        if covers is not None:
            worker.covers = covers
            covers.covered += 1
        if replaces is not None:
            worker.replaces, replaces.successor, replaces.replaced = replaces, worker, True
        elif kind.owed:
            worker.was_owed = True
            self._owe(kind, -1)
        state.bucket.take(state.now)
        kind.budget.started()
        state.counters.spawned += 1
        state.actions.append(Spawn(worker.id, kind.profile))
        state.notify("worker_spawned", worker=worker.id, profile=kind.profile.short)
        return worker

    def settle_start(self, worker: Worker) -> None:
        """The worker is no longer starting, for better or worse: whom it covered needs another one."""
        del worker.kind.group.starting[worker]
        self.uncover(worker)

    def uncover(self, worker: Worker) -> None:
        """The worker is no longer on its way to anybody in particular."""
        kind = worker.covers
        if kind is None:
            return
        worker.covers = None
        kind.covered -= 1
        self._state.claims -= worker.state is WorkerState.STOPPING
        self._state.waiting.wake(kind)
        self._state.prune(kind)

    def share(self, kind: Kind) -> bool:
        """Let a starting worker that fits, and whose own waiter was served elsewhere, cover a waiter of ``kind``."""
        for worker in kind.group.starting:
            covered = worker.covers
            spare = covered is None or (covered is not kind and covered.covered > self.demand(covered))
            if spare and worker.kind.serves(kind):
                if covered is not None:
                    covered.covered -= 1
                    self._state.waiting.wake(covered)
                worker.covers = kind
                kind.covered += 1
                return True
        return False

    def claim(self, kind: Kind, candidates: dict[Worker, None]) -> bool:
        """Mean the slot of a stopping worker for ``kind``, if one is not meant for anybody yet."""
        for worker in candidates:
            if worker.covers is None and (not self._agent_bound(kind) or worker.kind.agent is kind.agent):
                self.cover_by_stopping(worker, kind)
                return True
        return False

    def cover_by_stopping(self, worker: Worker, kind: Kind) -> None:
        """The slot of this stopping worker is meant for ``kind``."""
        worker.covers = kind
        kind.covered += 1
        self._state.claims += 1

    @property
    def slots_coming(self) -> int:
        """Processes that may be started once every stopping one is gone."""
        state = self._state
        return state.settings.max - (len(state.workers) - len(state.stopping))

    def _agent_bound(self, kind: Kind) -> bool:
        limit = self._state.settings.max_per_agent
        return bool(limit) and kind.agent.live >= limit

    # --- budgets ----------------------------------------------------------------------------------------------------

    def ready(self, worker: Worker) -> None:
        """A start succeeded."""
        kind = worker.kind
        self.settle_start(worker)
        if kind.budget.ready():
            self._state.timers.cancel(kind.retry_timer)
            self._state.notify("breaker_closed", profile=kind.profile.short)
            self._state.waiting.wake(kind)

    def charge(self, worker: Worker, error: PoolError) -> None:
        """A start failed, or a worker died before it was of any use: back off, or open the breaker.

        Where no worker of the kind ever worked, and this one has refused to start, another would do the same: who waits
        is told at once.
        """
        state, kind = self._state, worker.kind
        budget = kind.budget
        opened = budget.fail(state.now, error, state.settings, state.rng)
        if opened:
            state.timers.cancel(kind.retry_timer)
            kind.retry_timer = state.timers.at(budget.opened_until, self._half_open, kind)
            self._owe(kind, -kind.owed)
            state.notify("breaker_opened", profile=kind.profile.short, error=str(error))
        elif not budget.broken:
            state.timers.cancel(kind.retry_timer)
            kind.retry_timer = state.timers.at(budget.retry_at, state.waiting.wake, kind)
        state.waiting.wake(kind)
        if worker.failure is FailureKind.START and not budget.is_proven and _is_refusal(error):
            self._give_up_waiters(kind, error)

    def _give_up_waiters(self, kind: Kind, error: PoolError) -> None:
        state = self._state
        waiting = [waiter for waiter in state.requests.values() if waiter.kind is kind and not waiter.room_only]
        for waiter in waiting:
            if waiter.state is not WaiterState.PREPARING and waiter.session.state is SessionState.PARKED:
                state.reject(waiter, error)

    def abandoned(self, worker: Worker) -> None:
        """A start was stopped by us: its trial, if it was one, may be made by another."""
        worker.kind.budget.abandoned()
        self._state.waiting.wake(worker.kind)

    def owe(self, kind: Kind) -> None:
        """Start one more worker of ``kind`` when there is room: capacity was lost."""
        if self._state.mode in (Mode.RUNNING, Mode.PAUSED) and not kind.budget.broken:
            self._owe(kind, 1)

    def forgive(self) -> None:
        """Nothing is owed any more: the pool is full."""
        for kind in list(self._state.owed):
            self.forgive_kind(kind)
            self._state.prune(kind)

    def forgive_kind(self, kind: Kind) -> None:
        """Nothing of this kind is owed any more."""
        self._owe(kind, -kind.owed)

    def _owe(self, kind: Kind, more: int) -> None:
        kind.owed += more
        if kind.owed:
            self._state.owed[kind] = None
        else:
            self._state.owed.pop(kind, None)

    def _half_open(self, kind: Kind) -> None:
        kind.retry_timer = None
        if kind.budget.state is BreakerState.OPEN:
            kind.budget.half_open()
            self._state.notify("breaker_half_open", profile=kind.profile.short)
            self._state.waiting.wake(kind)


def _nothing(_: object) -> None:
    """The wake-up itself is the point: the pump runs after it."""


def _is_refusal(error: PoolError) -> bool:
    """Whether a program has itself ended its start, with an exit code or with words; a signal or a timeout may pass."""
    return error.details.get("exit_code") is not None or bool(error.details.get("refused"))
