"""The states of workers after their start: available, parked, retiring, stopping, dead."""

import math
from itertools import chain, islice

from errors import PoolError
from pool import rejections
from pool.available import EVICTION_ORDER
from pool.exits import REPLACEMENT_REASONS, exit_cause, needs_restart
from pool.records import SessionRecord, WorkerRecord, in_order
from pool.spawning import Spawner
from pool.state import PoolState
from pool.stimuli import FailureKind, Stop, StopReason, TurnStalled
from pool.transitions import ENDING, SERVING, PoolMode, SessionState, WaiterState, WorkerState

_IDLE, _LEASED = WorkerState.IDLE, WorkerState.LEASED
_PARKING = SessionState.PARKING
_MAX_RESUME_FAILURES = 2
_IMMEDIATE_REASONS = frozenset({"mismatch", "outdated"})
"""Reasons to go that wait for no replacement: it would be of the same kind."""
_AGE_JITTER = 0.1


class Workers:
    """Moves workers and sessions between their states. Availability is derived from facts, never assumed."""

    def __init__(self, state: PoolState, starts: Spawner) -> None:
        self._state = state
        self._spawner = starts

    # --- availability -----------------------------------------------------------------------------------------------

    def ready(self, worker: WorkerRecord) -> None:
        """A started worker takes requests."""
        state = self._state
        worker.ready_at = state.now
        self._spawner.start_succeeded(worker)
        state.transition_worker(worker, WorkerState.IDLE)
        state.notify("worker_ready", worker=worker.id)
        if worker.outdated and not worker.profile_record.waiters:
            worker.retire_reason = "outdated"
        self.arm_age_timer(worker)
        self.refresh(worker)
        self._release_predecessor(worker)

    def refresh(self, worker: WorkerRecord) -> None:
        """Bring the worker's state in line with the facts about its session; call after any of them changed."""
        before, state = worker.state, self._state
        if before not in SERVING:
            return
        in_use = worker.in_use
        if state.mode in ENDING and not in_use:
            self.stop(worker, StopReason.DRAINED)
            return
        if in_use or (worker.session is not None and (worker.background or worker in state.dedicated)):
            if before is _IDLE:
                state.index.discard(worker)
                state.transition_worker(worker, _LEASED)
            if in_use:
                state.pinned.pop(worker, None)
            else:
                self._keep(worker)
            return
        state.pinned.pop(worker, None)
        if before is _LEASED:
            state.transition_worker(worker, _IDLE)
            worker.retire_reason = "outdated" if worker.outdated else worker.retire_reason
        if self._retire_if_due(worker):
            return
        if worker not in state.index.lru:
            worker.idle_since = state.now
            state.index.add(worker)
            state.freed.append(worker)
            state.touched[worker.profile_record] = None
            self.arm_idle_timer(worker)

    def refresh_session(self, session: SessionRecord) -> None:
        """The same for the session's own worker."""
        if session.state is SessionState.ACTIVE and session.worker is not None:
            self.refresh(session.worker)

    def _keep(self, worker: WorkerRecord) -> None:
        """No request needs the worker, and its session keeps it, unless it is to go for a reason of its own."""
        dedicated = self._state.dedicated
        if worker in dedicated and not worker.background:
            worker.retire_reason = "outdated" if worker.outdated else worker.retire_reason
            if not self._retire_if_due(worker):
                dedicated[worker] = dedicated.pop(worker)  # the one used last is the last
        elif worker.retire_reason == "mismatch" and worker.session and worker.session.waiting:
            self.stop(worker, StopReason.MISMATCH)  # its own session would wait for the end of its commands
        elif worker not in dedicated:
            self._pin(worker)

    def _pin(self, worker: WorkerRecord) -> None:
        """Only background commands keep the worker; who waits may have it for another reason now."""
        state = self._state
        if worker not in state.pinned:
            state.pinned[worker] = None
            state.touched[worker.profile_record] = None
            state.waiting.wake(worker.profile_record)

    def turn_stalled(self, stalled: TurnStalled) -> None:
        """Count a turn that is aborted because nothing happens in it, and tell of it."""
        worker = self._state.workers.get(stalled.worker)
        if worker is not None and worker.session is not None:
            self._state.counters.stalled += 1
            seconds = float(self._state.settings.turn_stall)
            self._state.notify("turn_stalled", worker=worker.id, session=worker.session.key, silent_for=seconds)

    # --- parking ----------------------------------------------------------------------------------------------------

    def park(self, session: SessionRecord, why: str) -> WorkerRecord:
        """Part a quiescent session from its worker, which is free from now on (and keeps the old transcript open)."""
        state = self._state
        worker = session.worker
        if worker is None or not worker.quiescent:
            raise RuntimeError(f"session {session.key!r} cannot be parked now")
        state.index.unbind(worker)
        worker.session, worker.closing_session = None, session
        self._start_parking(session, worker, why)
        return worker

    def _start_parking(self, session: SessionRecord, worker: WorkerRecord, why: str) -> None:
        self._state.transition_session(session, _PARKING)
        self._state.counters.parked += 1
        self._state.notify("session_parked", session=session.key, worker=worker.id, reason=why)

    def finish_parking(self, session: SessionRecord) -> None:
        """No process has the session's transcript open any more: it may be opened by another."""
        self._state.transition_session(session, SessionState.PARKED)
        session.worker = None
        self._state.requeue(session)

    def unbind(self, session: SessionRecord, why: str) -> None:
        """The session's conversation is not open in its worker, which is free for any session, this one included."""
        worker = session.worker
        if worker is None:
            return
        self._start_parking(session, worker, why)
        worker.session = None
        self._state.dedicated.pop(worker, None)
        self.finish_parking(session)
        self.refresh(worker)

    def detach(self, session: SessionRecord) -> None:
        """The conversation is over: nothing of it binds its worker any longer."""
        worker = session.worker
        if worker is None:
            return
        state = self._state
        was_bound = worker.session is session
        was_busy = worker.background > 0
        if session.state is SessionState.ACTIVE:
            state.index.discard(worker)
            self._start_parking(session, worker, "forgotten")
        if was_bound:
            worker.session = None
            state.dedicated.pop(worker, None)
        if worker.closing_session is session:
            worker.closing_session = None
        self.finish_parking(session)
        if was_bound and was_busy:
            self.stop(worker, StopReason.RETIRED)
        elif was_bound:
            self.refresh(worker)

    # --- idle times -------------------------------------------------------------------------------------------------

    def arm_idle_timer(self, worker: WorkerRecord, after: float = -math.inf) -> None:
        """Have an available worker looked at when its next time is over; both times count from its last turn.

        A timer that comes too early stays and is armed again then: a worker that is used often needs a new one seldom.
        """
        state, limit = self._state, self._state.settings.session_idle_timeout
        stop_at = park_at = worker.idle_since + state.settings.idle_timeout
        if worker.session is not None:
            if not limit:  # one that is never parked keeps its worker
                return
            park_at = worker.idle_since + limit
        first, last = (stop_at, park_at) if stop_at < park_at else (park_at, stop_at)
        due = first if first > after else last
        timer = worker.idle_timer
        if due > after and (timer is None or timer.when > due):
            state.timers.cancel(timer)
            worker.idle_timer = state.timers.at(due, self._on_idle_timer, worker)

    def _on_idle_timer(self, worker: WorkerRecord) -> None:
        state = self._state
        worker.idle_timer = None
        if worker not in state.index.lru:
            return
        limit = state.settings.session_idle_timeout
        if worker.session is not None and limit and worker.idle_since + limit <= state.now:
            self.park(worker.session, "idle")
            state.freed.append(worker)
        self.stop_idle()
        if worker in state.index.lru:
            self.arm_idle_timer(worker, state.now)

    def stop_idle(self) -> None:
        """Stop idle workers above ``min`` and their profile's target that had no turn for ``idle_timeout``."""
        state = self._state
        while len(state.index) > state.settings.min and (worker := self._idle_too_long()) is not None:
            self.stop(worker, StopReason.IDLE)

    def _idle_too_long(self) -> WorkerRecord | None:
        """The worker used longest ago of those that may be stopped for being idle."""
        state, settings = self._state, self._state.settings
        for worker in state.index.lru:
            if worker.idle_since + settings.idle_timeout > state.now:
                return None
            kind = worker.profile_record
            is_reclaimable = worker.session is None or settings.session_idle_timeout > 0
            if is_reclaimable and (worker not in kind.unbound or len(kind.unbound) > kind.prewarm_target):
                return worker
        return None

    def shrink_to_max(self) -> None:
        """Stop what is above ``max``: available workers, the coldest first, then starting ones, the newest first."""
        state = self._state
        stoppable = len(state.index) + state.by_state[WorkerState.STARTING]
        excess = max(0, min(-self._spawner.slots_after_stops, stoppable))
        starting = (worker for worker in reversed(state.workers.values()) if worker.state is WorkerState.STARTING)
        for worker in list(islice(chain(EVICTION_ORDER(state.index.lru), starting), excess)):
            if self._spawner.slots_after_stops < 0:
                self.stop(worker, StopReason.RETIRED)

    # --- retiring ---------------------------------------------------------------------------------------------------

    def arm_age_timer(self, worker: WorkerRecord) -> None:
        """(Re)start the clock of ``max_age``, with 10 % jitter so that workers started together do not retire so."""
        state = self._state
        state.timers.cancel(worker.age_timer)
        if state.settings.max_age:
            jitter = state.rng.uniform(1 - _AGE_JITTER, 1 + _AGE_JITTER)
            due = worker.spawned_at + state.settings.max_age * jitter
            worker.age_timer = state.timers.at(due, self._on_age_timer, worker)

    def _on_age_timer(self, worker: WorkerRecord) -> None:
        self.schedule_retirement(worker, "age")

    def schedule_retirement(self, worker: WorkerRecord, why: str) -> None:
        """Stop the worker at its next turn boundary; where ``why`` asks for it, start a replacement first."""
        if why == "drain" and worker.state is WorkerState.STARTING:
            self.stop(worker, StopReason.RETIRED)
        why = "outdated" if worker.outdated and why != "mismatch" else why
        if worker.state not in SERVING or worker.retire_reason in ("mismatch", why):
            return
        worker.retire_reason = why
        if why in REPLACEMENT_REASONS and not worker.replaced and self._state.mode is PoolMode.RUNNING:
            kind = worker.profile_record
            if self._spawner.blocking_condition(kind) is None:
                self._spawner.spawn(kind, replaces=worker)
        self.refresh(worker)

    def mark_outdated(self, worker: WorkerRecord) -> None:
        """Its profile is no longer requested: stop it as soon as no waiting request needs it."""
        worker.outdated = True
        if worker.state is WorkerState.STARTING and not worker.profile_record.waiters:
            self.stop(worker, StopReason.RETIRED)
        else:
            self.schedule_retirement(worker, "outdated")

    def _retire_if_due(self, worker: WorkerRecord) -> bool:
        """Stop a quiescent worker that is to go: over ``max``, or retiring and not waiting for its replacement."""
        state = self._state
        is_too_many = len(state.workers) - len(state.stopping) > state.places.limit and worker not in state.dedicated
        may_go = worker.successor is None or worker.retire_reason in _IMMEDIATE_REASONS
        if not is_too_many and (worker.retire_reason is None or not may_go):
            return False
        self.stop(worker, StopReason.RETIRED)
        return True

    def _release_predecessor(self, worker: WorkerRecord, *, failed: bool = False) -> None:
        """The replacement is there (or will not come): the worker it replaces may go."""
        old = worker.replaces
        if old is None:
            return
        worker.replaces = old.successor = None
        old.replaced = not failed
        self.refresh(old)

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self, worker: WorkerRecord, reason: StopReason, *, force: bool = False) -> None:
        """End the process. Its session parks; requests that it was being prepared for wait again."""
        state = self._state
        if worker.state in (WorkerState.STOPPING, WorkerState.DEAD):
            return
        was_starting = worker.state is WorkerState.STARTING
        self._withdraw(worker)
        worker.stop_reason = reason
        if was_starting:
            self._spawner.finish_start(worker)
            if worker.failure in (None, FailureKind.LOST):
                self._spawner.start_abandoned(worker)
        state.begin_stop(worker)
        self._end_binding(worker, reason.value)
        state.actions.append(Stop(worker.id, reason, force))
        self._release_predecessor(worker, failed=True)

    def exited(self, worker: WorkerRecord, error: PoolError) -> None:
        """The process is reaped: its slot is free, its sessions are parked, its holds are void."""
        state = self._state
        kind = worker.profile_record
        crashed = worker.state is not WorkerState.STOPPING
        owed = needs_restart(worker, crashed=crashed)
        self._withdraw(worker)
        kind.budget.losses += crashed or worker.failure is not None
        if crashed:
            self._crashed(worker, error)
        self._spawner.release_claim(worker)
        self._void_holds(worker)
        state.remove_worker(worker)
        cause = exit_cause(worker)
        state.counters.exits[cause] += 1
        state.notify("worker_exited", worker=worker.id, cause=cause, **rejections.describe_end(error))
        for session in (worker.session, worker.closing_session):
            if session is not None and session.worker is worker:
                self.finish_parking(session)
        worker.session = worker.closing_session = None
        if owed:
            self._spawner.require_restart(kind)
        self._after_exit(worker)

    def resume_failed(self, session: SessionRecord, error: PoolError) -> None:
        """Charge the session; the second failure in a row ends it until it is forgotten."""
        state = self._state
        session.resume_failures += 1
        if session.resume_failures < _MAX_RESUME_FAILURES:
            return
        session.failed = rejections.resume_failed(session, error)
        state.notify("session_failed", session=session.key, error=str(error))
        for waiter in in_order(session.waiting):
            state.reject(waiter, session.failed)

    def _crashed(self, worker: WorkerRecord, error: PoolError) -> None:
        """An exit that was not ordered: charge the session or the profile."""
        state = self._state
        preparation, session = worker.preparation, worker.session
        if worker.state is WorkerState.STARTING:
            self._spawner.finish_start(worker)
            worker.failure = FailureKind.START
        self._end_binding(worker, "worker_exited")
        if session is not None and preparation is not None and preparation.resume_from and preparation.resetting:
            self.resume_failed(session, error)
        elif not worker.proven:
            self._spawner.record_failure(worker, error)
        state.waiting.wake(worker.profile_record)

    def _withdraw(self, worker: WorkerRecord) -> None:
        """Nothing more is wanted of the worker, and nothing is due for it."""
        state = self._state
        state.index.discard(worker)
        state.pinned.pop(worker, None)
        state.dedicated.pop(worker, None)
        state.timers.cancel(worker.idle_timer)
        state.timers.cancel(worker.age_timer)

    def _end_binding(self, worker: WorkerRecord, why: str) -> None:
        """The worker will not serve its session any more."""
        state = self._state
        session, preparation = worker.session, worker.preparation
        if preparation is not None and session is not None:
            for waiter in list(preparation.waiters.values()):
                state.count_ordinary(worker, -1, privileged=waiter.privileged)
                state.enqueue(waiter, WaiterState.BLOCKED)
            worker.preparation = None
        if session is not None:
            self._start_parking(session, worker, why)

    def _void_holds(self, worker: WorkerRecord) -> None:
        state = self._state
        session = worker.session
        if session is None:
            return
        for request in session.holds:
            held = state.holds.pop(request)
            state.lost_holds[request] = held.hold.generation
            state.count_ordinary(worker, -1, privileged=held.privileged)
            state.counters.lost += 1
        session.holds.clear()

    def _after_exit(self, worker: WorkerRecord) -> None:
        state = self._state
        kind = worker.profile_record
        state.touched[kind] = None
        for line in kind.queues:
            if line.condition is kind.condition:
                state.waiting.ready.add(line)
        self._release_predecessor(worker, failed=True)
        if worker.successor is not None:
            worker.successor.replaces = None
            worker.successor = None
        state.prune(kind)
