"""Where a request goes: at once to its own or a free worker, onto the waiting list, or away with an error."""

from collections.abc import Callable

from errors import PoolSaturated
from pool import rejections
from pool.binding import SessionBinder
from pool.dedicated import Dedication
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, Waiter, WorkerRecord, in_order
from pool.spawning import Spawner
from pool.state import PoolState
from pool.stimuli import SpawnPolicy, StopReason
from pool.transitions import PoolMode, SessionState, WaiterState
from pool.workers import Workers
from profiles.profile import CapabilityProfile

_RUNNING = PoolMode.RUNNING
_ACTIVE, _PARKED = SessionState.ACTIVE, SessionState.PARKED


class Admission:
    """The first steps of acquiring, and the door of the waiting list."""

    def __init__(self, state: PoolState, starts: Spawner, fleet: Workers, leases: SessionBinder) -> None:
        self._state = state
        self._spawner = starts
        self._workers = fleet
        self._binder = leases
        self.dedication = Dedication(state)

    def admit(self, waiter: Waiter, *, spawn: SpawnPolicy) -> None:
        """Serve a new request at once, put it on the waiting list, or refuse it."""
        state = self._state
        session = waiter.session
        if not self.dedication.admit(waiter):
            return
        if session.state is not _PARKED:
            if self._serve_on_own(waiter):
                return
        elif not session.waiting and self._bind(waiter, state.index.match_unbound):
            return
        if spawn is not True:
            if not self._admit_without_waiting(waiter):
                state.reject(waiter, self._no_wait_error(waiter))
            return
        if (state.index.lru and self._rebind(waiter)) or not self._admit_to_wait(waiter):
            return
        loser = state.waiting.pick_victim(waiter.priority) if self._is_list_full(waiter) else None
        first = session.state is _PARKED and not session.waiting
        state.enqueue(waiter, WaiterState.QUEUED if first else WaiterState.BLOCKED)
        if loser is not None:
            state.reject(loser, self._saturated_error("the waiting list is full"))
        if waiter.state is WaiterState.BLOCKED:
            self.retry_session(session)

    def _admit_without_waiting(self, waiter: Waiter) -> bool:
        """Start a worker for the request where there is room, else rebind one; the start itself is waited for."""
        state = self._state
        session = waiter.session
        if session.state is not _PARKED or session.waiting:
            return False
        may_start = waiter.room_only and state.mode is _RUNNING and (waiter.privileged or state.quota_open)
        if may_start and waiter.deadline > state.now and self._spawner.has_room(waiter.profile_record, state.now):
            state.enqueue(waiter, WaiterState.QUEUED)
            return True
        # a request that does not wait is never rebound past those who do
        return not waiter.profile_record.queued and self._bind(waiter, state.index.match_quiescent)

    def _no_wait_error(self, waiter: Waiter) -> PoolSaturated:
        """Why a request that does not wait is not served: trying again helps only where the pool is full."""
        state = self._state
        is_parked = waiter.session.state is _PARKED
        if is_parked and state.mode is _RUNNING and self._spawner.has_room(waiter.profile_record, state.now):
            return rejections.spawn_not_allowed(state.counts(), waiter.session.key)
        return self._saturated_error("nothing fits right now")

    def has_room(self, session: SessionRecord | None, profile: CapabilityProfile, now: float) -> bool:
        """Whether ``admit`` would serve a request with ``spawn="room"``, or start a worker for it."""
        state = self._state
        if self.has_worker(session, profile):
            return True
        if session is not None and (session.state is not _PARKED or session.waiting):
            return False
        kind = state.profiles.get(profile.signature) or _unknown_profile(state, profile)
        can_start = state.quota_open and self._spawner.has_room(kind, now)
        return state.mode is _RUNNING and can_start and self.dedication.may_have(session, kind)

    def has_worker(self, session: SessionRecord | None, profile: CapabilityProfile) -> bool:
        """Whether ``admit`` would serve a request that may not wait; ``session`` None: one that is not known."""
        state = self._state
        kind = state.profiles.get(profile.signature) or _unknown_profile(state, profile)
        if state.mode is not _RUNNING or not self.dedication.may_have(session, kind):
            return False
        if session is None or session.state is _PARKED:
            if session is not None and session.waiting:
                return False
            quiet = None if kind.queued else state.index.match_quiescent(kind)
            return state.quota_open and (state.index.match_unbound(kind) or quiet) is not None
        worker = session.worker
        if worker is None or not (worker.ordinary_holds > 0 or state.quota_open):
            return False
        if session.state is _ACTIVE:
            return worker.serves_now(kind)
        return worker in state.index.lru and not worker.drifted and worker.profile_record.serves(kind)

    def retry_session(self, session: SessionRecord) -> None:
        """Look again at the waiting requests of one session."""
        state = self._state
        if session.state is _ACTIVE:
            self._binder.serve_waiting(session)
        elif session.state is _PARKED:
            state.requeue(session)
        elif session.worker is not None and session.worker in state.index.lru:
            self._retry_parking(session, session.worker)

    def _retry_parking(self, session: SessionRecord, worker: WorkerRecord) -> None:
        """A parking session whose old worker is free: back to it, or if it does not fit, away with it."""
        state = self._state
        for waiter in in_order(session.waiting):
            if self._serve_on_own(waiter):
                return
            if worker.drifted or not worker.profile_record.serves(waiter.profile_record):
                self._workers.stop(worker, StopReason.RETIRED)
                return
            if not state.reserve_allows(worker, waiter):
                state.defer(waiter)

    def _serve_on_own(self, waiter: Waiter) -> bool:
        """Steps on the worker that has (or still keeps open) the session's conversation."""
        state = self._state
        session = waiter.session
        worker = session.worker
        if session.state is _ACTIVE:
            return self._binder.serve_bound(waiter)
        if worker is None or worker not in state.index.lru or state.mode is not _RUNNING:
            return False
        if (
            worker.drifted
            or not worker.profile_record.serves(waiter.profile_record)
            or not state.reserve_allows(worker, waiter)
        ):
            return False
        self._binder.bind(worker, waiter)
        return True

    def _bind(self, waiter: Waiter, match: Callable[[ProfileRecord], WorkerRecord | None]) -> bool:
        state = self._state
        if state.mode is not _RUNNING or not (waiter.privileged or state.quota_open):
            return False
        worker = match(waiter.profile_record)
        if worker is not None:
            self._binder.bind(worker, waiter)
        return worker is not None

    def _rebind(self, waiter: Waiter) -> bool:
        """Do at once what the scheduler would: no process may be started for the request, and none is on its way."""
        state, session, kind = self._state, waiter.session, waiter.profile_record
        if session.state is not _PARKED or session.waiting or waiter.deadline <= state.now:
            return False
        if kind.claims or kind.group.starting or self._spawner.blocking_condition(kind) is None:
            return False
        return self._bind(waiter, state.index.match_quiescent)

    def _admit_to_wait(self, waiter: Waiter) -> bool:
        """Whether the request may wait; it is refused here if not."""
        state = self._state
        kind = waiter.profile_record
        if waiter.deadline <= state.now:
            state.expire(waiter)
            return False
        if waiter.session.state is _PARKED and kind.budget.is_open and not self._will_rebind(waiter):
            state.reject(waiter, rejections.broken(state.counts(), kind, state.now))
            return False
        if self._is_list_full(waiter) and state.waiting.pick_victim(waiter.priority) is None:
            state.reject(waiter, self._saturated_error("the waiting list is full"))
            return False
        return True

    def _is_list_full(self, waiter: Waiter) -> bool:
        """Whether the waiting list has no place for this request, which would need one."""
        state = self._state
        full = waiter.bounded and state.waiting.bounded >= state.settings.waiting_capacity
        return full and not self._will_rebind(waiter)

    def _saturated_error(self, why: str) -> PoolSaturated:
        state = self._state
        return rejections.saturated(state.counts(), why, state.retry_after, state.pinned_sessions())

    def _will_rebind(self, waiter: Waiter) -> bool:
        """Whether the scheduler will then rebind a quiet worker to this request, or to one it takes the place of."""
        state = self._state
        kind = waiter.profile_record
        return (
            state.mode is _RUNNING
            and waiter.session.state is _PARKED
            and (waiter.privileged or state.quota_open)
            and self._spawner.blocking_condition(kind) is not None
            and state.index.match_quiescent(kind) is not None
        )


def _unknown_profile(state: PoolState, profile: CapabilityProfile) -> ProfileRecord:
    """A profile without a request so far, which workers of others may serve; it leaves no trace."""
    group = state.groups.get(profile.hard_signature) or HardGroup()
    agent = state.agents.get((profile.agent, profile.group))
    return ProfileRecord(profile, group, agent or AgentWorkers(profile.agent, state.places.get(profile.group)))
