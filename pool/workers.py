"""The life of workers after their start: availability, parking, retiring, stopping, death."""

from errors import PoolError
from pool import rejections
from pool.records import Session, Worker
from pool.spawning import Starts
from pool.state import State
from pool.states import Mode, SessionState, WaiterState, WorkerState
from pool.stimuli import FailureKind, Stop, StopReason, TurnStalled

_MAX_RESUME_FAILURES = 2
_AT_ONCE = frozenset({"mismatch", "outdated"})
"""Reasons to go that wait for no replacement: it would be of the same kind."""
_REPLACED = frozenset({"age", "turns", "rss", "recycle"})
_AGE_JITTER = 0.1


class Fleet:
    """Moves workers and sessions between their states. Availability is derived from facts, never assumed."""

    def __init__(self, state: State, starts: Starts) -> None:
        self._state = state
        self._starts = starts

    # --- availability -----------------------------------------------------------------------------------------------

    def ready(self, worker: Worker) -> None:
        """A started worker takes requests."""
        state = self._state
        worker.ready_at = state.now
        self._starts.ready(worker)
        state.move_worker(worker, WorkerState.IDLE)
        state.notify("worker_ready", worker=worker.id)
        if worker.outdated and not worker.kind.waiters:
            worker.retiring = "outdated"
        self.arm_age(worker)
        self.refresh(worker)
        self._release_predecessor(worker)

    def refresh(self, worker: Worker) -> None:
        """Bring the worker's state in line with the facts about its session; call after any of them changed."""
        before = worker.state
        if before is not WorkerState.IDLE and before is not WorkerState.LEASED:
            return
        if self._state.mode in (Mode.DRAINING, Mode.CLOSED) and not worker.in_use:
            self.stop(worker, StopReason.DRAINED)
            return
        if not worker.quiescent:
            if before is WorkerState.IDLE:
                self.withdraw(worker)
                self._state.move_worker(worker, WorkerState.LEASED)
            if worker.retiring == "mismatch" and not worker.in_use and worker.session and worker.session.waiting:
                self.stop(worker, StopReason.MISMATCH)  # its own session would wait for its commands, perhaps for ever
            else:
                self._note_pin(worker)
            return
        self._state.pinned.pop(worker, None)
        if before is WorkerState.LEASED:
            self._state.move_worker(worker, WorkerState.IDLE)
            worker.retiring = "outdated" if worker.outdated else worker.retiring
        if self._retire_if_due(worker):
            return
        if worker not in self._state.index:
            self._make_available(worker)

    def _note_pin(self, worker: Worker) -> None:
        """Only background commands keep the worker, or more than that; who waits may have it for another reason now."""
        state = self._state
        if worker.in_use:
            state.pinned.pop(worker, None)
        elif worker not in state.pinned:
            state.pinned[worker] = None
            state.touched_agents[worker.kind.agent] = None
            state.waiting.wake(worker.kind)

    def withdraw(self, worker: Worker) -> None:
        """Take the worker out of the available ones."""
        self._state.index.discard(worker)
        self._state.timers.cancel(worker.idle_timer)

    def _make_available(self, worker: Worker) -> None:
        state = self._state
        worker.idle_since = state.now
        state.index.add(worker)
        state.freed.append(worker)
        state.touched_agents[worker.kind.agent] = None
        self.arm_idle(worker)

    def turn_stalled(self, stalled: TurnStalled) -> None:
        """Count a turn that is aborted because nothing happens in it, and tell of it."""
        worker = self._state.workers.get(stalled.worker)
        if worker is not None and worker.session is not None:
            self._state.counters.stalled += 1
            seconds = float(self._state.settings.turn_stall)
            self._state.notify("turn_stalled", worker=worker.id, session=worker.session.key, silent_for=seconds)

    # --- parking ----------------------------------------------------------------------------------------------------

    def park(self, session: Session, why: str) -> Worker:
        """Part a quiescent session from its worker, which is free from now on (and keeps the old transcript open)."""
        state = self._state
        worker = session.worker
        if worker is None or not worker.quiescent:
            raise RuntimeError(f"session {session.key!r} cannot be parked now")
        state.index.unbind(worker)
        worker.session, worker.closing = None, session
        self._start_parking(session, worker, why)
        return worker

    def _start_parking(self, session: Session, worker: Worker, why: str) -> None:
        self._state.move_session(session, SessionState.PARKING)
        self._state.counters.parked += 1
        self._state.notify("session_parked", session=session.key, worker=worker.id, reason=why)

    def parked(self, session: Session) -> None:
        """No process has the session's transcript open any more: it may be opened by another."""
        self._state.move_session(session, SessionState.PARKED)
        session.worker = None
        self._state.requeue(session)

    def unbind(self, session: Session) -> None:
        """The session's conversation was never opened by its worker, which is free for any other."""
        worker = session.worker
        if worker is None:
            return
        self._start_parking(session, worker, "no_room")
        worker.session = None
        self.parked(session)
        self.refresh(worker)

    def detach(self, session: Session) -> None:
        """The conversation is over: nothing of it binds its worker any longer."""
        worker = session.worker
        if worker is None:
            return
        was_bound = worker.session is session
        was_busy = worker.background > 0
        if session.state is SessionState.ACTIVE:
            self.withdraw(worker)
            self._start_parking(session, worker, "forgotten")
        if was_bound:
            worker.session = None
        if worker.closing is session:
            worker.closing = None
        self.parked(session)
        if was_bound and was_busy:
            self.stop(worker, StopReason.RETIRED)
        elif was_bound:
            self.refresh(worker)

    # --- idle times -------------------------------------------------------------------------------------------------

    def arm_idle(self, worker: Worker) -> None:
        """(Re)start the clock of an available worker; all its times count from its last turn."""
        self._arm_idle(worker, self._idle_dues(worker))

    def _arm_idle(self, worker: Worker, dues: list[float]) -> None:
        timers = self._state.timers
        timers.cancel(worker.idle_timer)
        if dues:
            worker.idle_timer = timers.at(min(dues), self._idle_long, worker)

    def _idle_dues(self, worker: Worker) -> list[float]:
        """When the worker may be stopped, and when its session is parked."""
        settings = self._state.settings
        dues = []
        if self._is_reclaimable(worker):
            dues.append(worker.idle_since + settings.idle_timeout)
        if worker.session is not None and settings.session_idle_timeout:
            dues.append(worker.idle_since + settings.session_idle_timeout)
        return dues

    def _is_reclaimable(self, worker: Worker) -> bool:
        """A session that is never parked keeps its worker."""
        return worker.session is None or self._state.settings.session_idle_timeout > 0

    def _idle_long(self, worker: Worker) -> None:
        state = self._state
        limit = state.settings.session_idle_timeout
        if worker.session is not None and limit and worker.idle_since + limit <= state.now:
            self.park(worker.session, "idle")
            state.freed.append(worker)
        self.reclaim()
        if worker in state.index:
            self._arm_idle(worker, [due for due in self._idle_dues(worker) if due > state.now])

    def reclaim(self) -> None:
        """Stop idle workers above ``min`` and their profile's target that had no turn for ``idle_timeout``."""
        state = self._state
        surplus = len(state.index) - state.settings.min
        if surplus <= 0:
            return
        for worker in list(state.index.lru):
            kind = worker.kind
            over = self._is_reclaimable(worker) and worker.idle_since + state.settings.idle_timeout <= state.now
            if over and (worker not in kind.free or len(kind.free) > kind.target):
                self.stop(worker, StopReason.IDLE)
                surplus -= 1
                if surplus <= 0:
                    return

    def shed(self) -> None:
        """Stop what is above ``max``: available workers, the coldest first, then starting ones, the newest first."""
        state = self._state
        candidates = list(state.index.lru)
        candidates += [worker for worker in reversed(state.workers.values()) if worker.state is WorkerState.STARTING]
        for worker in candidates:
            if self._starts.slots_coming >= 0:
                return
            self.stop(worker, StopReason.RETIRED)

    # --- retiring ---------------------------------------------------------------------------------------------------

    def arm_age(self, worker: Worker) -> None:
        """(Re)start the clock of ``max_age``, with 10 % jitter so that workers started together do not retire so."""
        state = self._state
        state.timers.cancel(worker.age_timer)
        if state.settings.max_age:
            jitter = state.rng.uniform(1 - _AGE_JITTER, 1 + _AGE_JITTER)
            due = worker.spawned_at + state.settings.max_age * jitter
            worker.age_timer = state.timers.at(due, self._too_old, worker)

    def _too_old(self, worker: Worker) -> None:
        self.condemn(worker, "age")

    def condemn(self, worker: Worker, why: str) -> None:
        """Stop the worker at its next turn boundary; where ``why`` asks for it, start a replacement first."""
        why = "outdated" if worker.outdated and why != "mismatch" else why
        if worker.state not in (WorkerState.IDLE, WorkerState.LEASED) or worker.retiring in ("mismatch", why):
            return
        worker.retiring = why
        if why in _REPLACED and not worker.replaced and self._state.mode is Mode.RUNNING:
            kind = worker.kind
            if self._starts.gate_for(kind) is None:
                self._starts.spawn(kind, replaces=worker)
        self.refresh(worker)

    def outdate(self, worker: Worker) -> None:
        """Nobody will ask for its kind again: stop it, as soon as it serves nobody who still does."""
        worker.outdated = True
        if worker.state is WorkerState.STARTING and not worker.kind.waiters:
            self.stop(worker, StopReason.RETIRED)
        else:
            self.condemn(worker, "outdated")

    def _retire_if_due(self, worker: Worker) -> bool:
        """Stop a quiescent worker that is to go: over ``max``, or retiring and not waiting for its replacement."""
        if self._starts.slots_coming < 0:
            self.stop(worker, StopReason.RETIRED)
            return True
        if worker.retiring is None or (worker.successor is not None and worker.retiring not in _AT_ONCE):
            return False
        self.stop(worker, StopReason.RETIRED)
        return True

    def _release_predecessor(self, worker: Worker, *, failed: bool = False) -> None:
        """The replacement is there (or will not come): the worker it replaces may go."""
        old = worker.replaces
        if old is None:
            return
        worker.replaces = old.successor = None
        old.replaced = not failed
        self.refresh(old)

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self, worker: Worker, reason: StopReason, *, force: bool = False) -> None:
        """End the process. Its session parks; whoever was being prepared for it waits again."""
        state = self._state
        if worker.state in (WorkerState.STOPPING, WorkerState.DEAD):
            return
        was_starting = worker.state is WorkerState.STARTING
        self.withdraw(worker)
        state.pinned.pop(worker, None)
        state.timers.cancel(worker.age_timer)
        worker.stop_reason = reason
        if was_starting:
            self._starts.settle_start(worker)
            if worker.failure is None:
                self._starts.abandoned(worker)
        state.move_worker(worker, WorkerState.STOPPING)
        state.stopping[worker] = None
        self._part(worker, reason.value)
        state.actions.append(Stop(worker.id, reason, force))
        self._release_predecessor(worker, failed=True)

    def exited(self, worker: Worker, error: PoolError) -> None:
        """The process is reaped: its slot is free, its sessions are parked, its holds are void."""
        state = self._state
        kind = worker.kind
        crashed = worker.state is not WorkerState.STOPPING
        owed = self._leaves_a_gap(worker, crashed=crashed)
        self.withdraw(worker)
        state.pinned.pop(worker, None)
        state.timers.cancel(worker.age_timer)
        if crashed:
            self._crashed(worker, error)
        self._starts.uncover(worker)
        self._lose_holds(worker)
        state.move_worker(worker, WorkerState.DEAD)
        state.by_state[WorkerState.DEAD] -= 1
        del state.workers[worker.id]
        state.stopping.pop(worker, None)
        kind.live -= 1
        kind.agent.live -= 1
        cause = _cause(worker)
        state.counters.exits[cause] += 1
        state.notify("worker_exited", worker=worker.id, cause=cause, error=str(error))
        for session in (worker.session, worker.closing):
            if session is not None and session.worker is worker:
                self.parked(session)
        worker.session = worker.closing = None
        if owed:
            self._starts.owe(kind)
        self._after_exit(worker)

    def resume_failed(self, session: Session, error: PoolError) -> None:
        """Charge the session; the second failure in a row ends it until it is forgotten."""
        state = self._state
        session.resume_failures += 1
        if session.resume_failures < _MAX_RESUME_FAILURES:
            return
        session.failed = rejections.resume_failed(session, error)
        state.notify("session_failed", session=session.key, error=str(error))
        for waiter in session.in_order():
            state.reject(waiter, session.failed)

    def _crashed(self, worker: Worker, error: PoolError) -> None:
        """Nobody asked for this exit: find out who is to be charged."""
        state = self._state
        preparation, session = worker.preparation, worker.session
        if worker.state is WorkerState.STARTING:
            self._starts.settle_start(worker)
            worker.failure = FailureKind.START
        self._part(worker, "worker_exited")
        if session is not None and preparation is not None and preparation.resume_from and preparation.resetting:
            self.resume_failed(session, error)
        elif not worker.proven:
            self._starts.charge(worker, error)
        state.waiting.wake(worker.kind)

    def _part(self, worker: Worker, why: str) -> None:
        """The worker will not serve its session any more."""
        state = self._state
        session, preparation = worker.session, worker.preparation
        if preparation is not None and session is not None:
            for waiter in list(preparation.waiters.values()):
                state.charge(worker, -1, privileged=waiter.privileged)
                state.wait(waiter, WaiterState.BLOCKED)
            worker.preparation = None
        if session is not None:
            self._start_parking(session, worker, why)

    def _lose_holds(self, worker: Worker) -> None:
        state = self._state
        session = worker.session
        if session is None:
            return
        for request in session.holds:
            held = state.holds.pop(request)
            state.lost[request] = held.hold.generation
            state.charge(worker, -1, privileged=held.privileged)
            state.counters.lost += 1
        session.holds.clear()

    def _leaves_a_gap(self, worker: Worker, *, crashed: bool) -> bool:
        """Whether the lost worker is to be started again although nobody may be waiting for it."""
        if worker.outdated:
            return False
        if worker.state is WorkerState.STARTING or worker.failure is FailureKind.START:
            return worker.was_owed
        if crashed or worker.stop_reason is StopReason.FAILED:
            return not worker.replaced
        return worker.stop_reason is StopReason.RETIRED and worker.retiring in _REPLACED and not worker.replaced

    def _after_exit(self, worker: Worker) -> None:
        state = self._state
        kind = worker.kind
        state.touched_agents[kind.agent] = None
        for line in kind.lines:
            if line.gate is kind.gate:
                state.waiting.ready.add(line)
        self._release_predecessor(worker, failed=True)
        if worker.successor is not None:
            worker.successor.replaces = None
            worker.successor = None
        state.prune(kind)


def _cause(worker: Worker) -> str:
    """Why the process ended: what it failed at, why we stopped it, or ``crashed``."""
    if worker.failure is not None:
        return worker.failure.value
    return worker.stop_reason.value if worker.stop_reason is not None else "crashed"
