"""From a chosen worker to a grant and back: Reset, Reconcile, Grant, Release, and what each may fail with."""

from errors import PoolError, UsageError
from pool.records import HoldRecord, SessionRecord, Waiter, WorkerPreparation, WorkerRecord, in_order
from pool.state import PoolState
from pool.stimuli import Cancel, FailureKind, Grant, Reconcile, Release, Reset, StopReason, WorkerHold
from pool.transitions import PoolMode, SessionState, WaiterState, WorkerState
from pool.workers import Workers
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile

_RUNNING, _PAUSED, _BOUND = PoolMode.RUNNING, PoolMode.PAUSED, MatchLevel.BOUND
_ACTIVE, _PARKING = SessionState.ACTIVE, SessionState.PARKING
_LEASED, _PREPARING = WorkerState.LEASED, WaiterState.PREPARING
_DEATHS = (FailureKind.CRASHED, FailureKind.PROTOCOL)


class SessionBinder:
    """Binds sessions to workers and hands out holds.

    A session is always reset into a worker before its first grant there, so that nothing of an earlier conversation
    can remain and the transcript's path is known. A soft difference on the session's own worker is reconciled only
    while no other request holds it: a running turn keeps the model it began with.
    """

    def __init__(self, state: PoolState, fleet: Workers) -> None:
        self._state = state
        self._workers = fleet

    # --- taking -----------------------------------------------------------------------------------------------------

    def bind(self, worker: WorkerRecord, waiter: Waiter) -> None:
        """Give an available worker to the waiter's session: bind, reset, and let the session's other requests join."""
        state = self._state
        session = waiter.session
        level = worker.profile_record.match_level(waiter.profile_record)
        if worker.session is not None:
            self._workers.park(worker.session, "rebound")
        state.index.discard(worker)
        if session.state is _PARKING:
            worker.closing_session = None
            state.transition_session(session, SessionState.PARKED)
        state.transition_session(session, _ACTIVE)
        state.transition_worker(worker, _LEASED)
        session.worker, worker.session, session.node = worker, session, worker.node
        worker.session_turns = 0
        if waiter.profile_record.is_dedicated and len(state.dedicated) < state.places.limit - 1:
            state.dedicated[worker] = None
        worker.preparation = WorkerPreparation(
            waiter.profile_record.profile.soft, level, resetting=True, resume_from=session.transcript
        )
        self._join(worker, waiter)
        if session.waiting:
            for other in in_order(session.waiting):
                if other.state is WaiterState.QUEUED:
                    state.waiting.transition(other, WaiterState.BLOCKED)
                self.serve_bound(other)
        is_fresh = worker.ready_at == state.now and not worker.was_leased
        worker.was_leased = True
        state.actions.append(Reset(worker.id, session.key, session.transcript, is_fresh=is_fresh))
        state.notify("session_bound", session=session.key, worker=worker.id, level=level.label)

    def serve_bound(self, waiter: Waiter) -> bool:
        """Serve the waiter by its session's own worker, if that can be done now: grant, join, or reconcile first."""
        state = self._state
        worker = waiter.session.worker
        if worker is None or state.mode is _PAUSED or not worker.serves_now(waiter.profile_record):
            return False
        if not state.reserve_allows(worker, waiter):
            return False
        soft = waiter.profile_record.profile.soft
        if worker.preparation is not None:
            self._join(worker, waiter)
        elif worker.soft == soft:
            self._grant(worker, waiter, _BOUND)
            self._workers.refresh(worker)
        else:
            worker.preparation = WorkerPreparation(soft, MatchLevel.BOUND, resetting=False, resume_from=None)
            self._join(worker, waiter)
            self._workers.refresh(worker)
            state.actions.append(Reconcile(worker.id, soft))
        return True

    def serve_waiting(self, session: SessionRecord) -> None:
        """Serve what can be served of an active session's blocked requests, and see what the others need."""
        state = self._state
        worker = session.worker
        if worker is None or session.state is not SessionState.ACTIVE:
            return
        for waiter in in_order(session.waiting):
            if self.serve_bound(waiter):
                continue
            if not worker.serves(waiter.profile_record):
                self._workers.schedule_retirement(worker, "mismatch")
                if session.worker is not worker or session.state is not SessionState.ACTIVE:
                    return
            elif not state.reserve_allows(worker, waiter):
                state.defer(waiter)
        self._workers.refresh(worker)

    def _join(self, worker: WorkerRecord, waiter: Waiter) -> None:
        """Let the waiter take part in the worker's preparation."""
        state = self._state
        preparation = worker.preparation
        if preparation is None:
            raise RuntimeError(f"worker {worker.id} is not being prepared")
        state.register(waiter)
        waiter.session.waiting.pop(waiter.request, None)
        state.waiting.transition(waiter, _PREPARING)
        preparation.waiters[waiter.request] = waiter
        state.count_ordinary(worker, 1, privileged=waiter.privileged)

    def _grant(self, worker: WorkerRecord, waiter: Waiter, level: MatchLevel) -> None:
        state = self._state
        grant = self._hold(worker, waiter.session, waiter.request, level, privileged=waiter.privileged)
        state.finish(waiter)
        if waiter.was_enqueued:
            state.record_service_interval()
        state.actions.append(grant)

    def _hold(
        self, worker: WorkerRecord, session: SessionRecord, request: str, level: MatchLevel, *, privileged: bool
    ) -> Grant:
        state = self._state
        state.generation += 1
        hold = WorkerHold(request, session.key, worker.id, state.generation)
        state.count_ordinary(worker, 1, privileged=privileged)
        state.holds[request] = HoldRecord(hold, session, worker, privileged=privileged)
        session.holds[request] = hold
        state.counters.grants[level.label] += 1
        return Grant(request, hold, level)

    def take_warm(self, request: str, session: SessionRecord, profile: CapabilityProfile) -> Grant | None:
        """Grant the session's own worker, as it is, to an ordinary request without a record; None: it has to wait."""
        state, worker = self._state, session.worker
        kind = state.profiles.get(profile.signature)
        if (
            kind is None
            or worker is None
            or session.state is not _ACTIVE
            or session.failed is not None
            or state.mode is not _RUNNING
            or worker.preparation is not None
            or worker.soft != profile.soft
            or not worker.serves(kind)
            or not (worker.ordinary_holds > 0 or state.quota_open)
        ):
            return None
        session.last_profile = profile
        grant = self._hold(worker, session, request, _BOUND, privileged=False)
        self._workers.refresh(worker)
        return grant

    # --- preparing --------------------------------------------------------------------------------------------------

    def reset_done(self, worker: WorkerRecord, key: str, transcript: str | None) -> None:
        """The conversation is in the worker; the one it had before is closed."""
        state = self._state
        session, preparation = worker.session, worker.preparation
        if session is None or preparation is None or not preparation.resetting or session.key != key:
            raise UsageError(f"worker {worker.id} is not being reset for session {key!r}", worker=worker.id)
        state.set_transcript(session, transcript)
        session.resume_failures = 0
        if preparation.resume_from is not None:
            state.counters.resumed += 1
            state.notify("session_resumed", session=key, worker=worker.id)
        preparation.resetting = False
        worker.soft = worker.profile_record.profile.soft
        if not worker.proven:
            worker.proven = True
            worker.profile_record.budget.mark_proven()
            state.waiting.wake(worker.profile_record)
        closing, worker.closing_session = worker.closing_session, None
        if closing is not None and closing is not session:
            self._workers.finish_parking(closing)
        if worker.soft != preparation.soft and preparation.waiters:
            state.actions.append(Reconcile(worker.id, preparation.soft))
        else:
            self._finish_preparation(worker)

    def reconciled(self, worker: WorkerRecord) -> None:
        """The worker has the wanted model and thinking level."""
        preparation = worker.preparation
        if preparation is None or preparation.resetting:
            raise UsageError(f"worker {worker.id} is not being reconciled", worker=worker.id)
        worker.soft = preparation.soft
        self._finish_preparation(worker)

    def reconcile_failed(self, worker: WorkerRecord, error: PoolError) -> None:
        """The wanted model was refused: those who want it fail, the worker goes on (with soft arguments unknown)."""
        preparation = worker.preparation
        if preparation is None or preparation.resetting or worker.session is None:
            raise UsageError(f"worker {worker.id} is not being reconciled", worker=worker.id)
        worker.soft = None
        for waiter in in_order(preparation.waiters):
            self._state.reject(waiter, error)
        self._finish_preparation(worker)

    def reset_refused(self, worker: WorkerRecord, kind: FailureKind, error: PoolError) -> None:
        """The fault is not this worker's: those who want the conversation fail, and nothing is held against it.

        One that has refused a new conversation because the disk is full has its earlier one, and is free. Of any other
        nothing is known: it is replaced.
        """
        preparation, session = worker.preparation, worker.session
        if preparation is None or session is None or not preparation.resetting:
            raise UsageError(f"worker {worker.id} is not being reset", worker=worker.id)
        for waiter in in_order(preparation.waiters):
            self._state.reject(waiter, error)
        if preparation.resume_from is not None or kind is FailureKind.UNFIT:
            self._workers.stop(worker, StopReason.RETIRED)
            return
        worker.preparation = None
        self._workers.unbind(session, "no_room")

    def _finish_preparation(self, worker: WorkerRecord) -> None:
        """Grant all waiters of this preparation; with none left the binding stays."""
        state = self._state
        preparation, session = worker.preparation, worker.session
        if preparation is None or session is None:
            raise RuntimeError(f"worker {worker.id} is not being prepared")
        level = preparation.level
        for waiter in in_order(preparation.waiters):
            if state.mode is PoolMode.PAUSED:
                state.remove_from_preparation(waiter)
                state.enqueue(waiter, WaiterState.BLOCKED)
            else:
                self._grant(worker, waiter, level)
                level = MatchLevel.BOUND
        worker.preparation = None
        if session.waiting:
            self.serve_waiting(session)
        self._workers.refresh(worker)

    # --- giving back ------------------------------------------------------------------------------------------------

    def release(self, release: Release) -> None:
        """End one hold; raises UsageError for a stale or unknown one."""
        state, hold = self._state, release.hold
        held = state.holds.get(hold.request)
        if held is None:
            if state.lost_holds.get(hold.request) != hold.generation:
                raise UsageError(f"hold {hold.generation} of request {hold.request!r} is not in force")
            del state.lost_holds[hold.request]
            return
        if held.hold != hold:
            raise UsageError(
                f"hold {hold.generation} of request {hold.request!r} is stale, {held.hold.generation} is in force"
            )
        self._release_hold(held, release.turns, lost=release.lost)

    def cancel(self, cancel: Cancel) -> None:
        """The caller is gone: it waits no longer, and holds nothing."""
        state, request = self._state, cancel.request
        waiter = state.requests.get(request)
        if waiter is not None:
            state.finish(waiter)
            state.counters.cancelled += 1
        elif (held := state.holds.get(request)) is not None:
            self._release_hold(held, 0)
        else:
            state.lost_holds.pop(request, None)

    def _release_hold(self, held: HoldRecord, turns: int, *, lost: bool = False) -> None:
        state = self._state
        worker, session = held.worker, held.session
        del state.holds[held.hold.request], session.holds[held.hold.request]
        state.count_ordinary(worker, -1, privileged=held.privileged)
        state.counters.releases += 1
        worker.turns += turns
        worker.session_turns += turns
        if worker.state is WorkerState.STOPPING:
            return
        if state.settings.max_turns and worker.turns >= state.settings.max_turns:
            self._workers.schedule_retirement(worker, "turns")
        if lost and not session.holds and worker.session is session and worker.preparation is None:
            self._workers.unbind(session, "lost")
            return
        if session.waiting:
            self.serve_waiting(session)
        self._workers.refresh(worker)

    # --- failures ---------------------------------------------------------------------------------------------------

    def failed(self, worker: WorkerRecord, kind: FailureKind, error: PoolError) -> bool:
        """Stop a worker that failed at ``kind``; the session of a failed resume is charged for it, and then True.

        So is that of a resume of which a worker has died that had served no session yet: what an agent cannot read
        stops no other session. One that had may have died of what an earlier session has left behind.
        """
        session, preparation = worker.session, worker.preparation
        resuming = preparation is not None and preparation.resume_from is not None and preparation.resetting
        if kind is FailureKind.RESUME and not resuming:
            kind = FailureKind.RESET
        worker.failure = kind
        self._workers.stop(worker, StopReason.FAILED, force=kind is not FailureKind.STALLED)
        died_of_it = resuming and not worker.proven and kind in _DEATHS
        if session is None or not (kind is FailureKind.RESUME or died_of_it):
            return False
        self._workers.resume_failed(session, error)
        return True
