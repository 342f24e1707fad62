"""Where a request goes: at once to its own or a free worker, onto the waiting list, or away with an error."""

from errors import PoolSaturated
from pool import rejections
from pool.binding import Leases
from pool.records import Agent, Group, Kind, Session, Worker
from pool.spawning import Starts
from pool.state import State
from pool.states import Mode, SessionState, WaiterState
from pool.stimuli import SpawnPolicy, StopReason
from pool.waiting_list import Waiter
from pool.workers import Fleet
from profiles.profile import CapabilityProfile


class Placing:
    """The first steps of acquiring, and the door of the waiting list."""

    def __init__(self, state: State, starts: Starts, fleet: Fleet, leases: Leases) -> None:
        self._state = state
        self._starts = starts
        self._fleet = fleet
        self._leases = leases

    def place(self, waiter: Waiter, *, spawn: SpawnPolicy) -> None:
        """Serve a new request at once, put it on the waiting list, or refuse it."""
        state = self._state
        session = waiter.session
        if session.state is not SessionState.PARKED:
            if self._take_own(waiter):
                return
        elif not session.waiting and self._take_free(waiter):
            return
        if spawn is not True:
            if not self._place_at_once(waiter):
                state.reject(waiter, self._nothing_now(waiter))
            return
        if not self._admit(waiter):
            return
        loser = state.waiting.lowest_below(waiter.priority) if self._is_crowded(waiter) else None
        first = session.state is SessionState.PARKED and not session.waiting
        state.wait(waiter, WaiterState.QUEUED if first else WaiterState.BLOCKED)
        if loser is not None:
            state.reject(loser, self._saturated("the waiting list is full"))
        if waiter.state is WaiterState.BLOCKED:
            self.revisit(session)

    def _place_at_once(self, waiter: Waiter) -> bool:
        """Start a worker for the request where there is room, else rebind one; the start itself is waited for."""
        state = self._state
        session = waiter.session
        if session.state is not SessionState.PARKED or session.waiting:
            return False
        may_start = waiter.room_only and state.mode is Mode.RUNNING and (waiter.privileged or state.quota_open)
        if may_start and waiter.deadline > state.now and self._starts.has_room(waiter.kind, state.now):
            state.wait(waiter, WaiterState.QUEUED)
            return True
        return self._rebind_now(waiter)

    def _nothing_now(self, waiter: Waiter) -> PoolSaturated:
        """Why a request that does not wait is not served: trying again helps only where the pool is full."""
        state = self._state
        is_parked = waiter.session.state is SessionState.PARKED
        if is_parked and state.mode is Mode.RUNNING and self._starts.has_room(waiter.kind, state.now):
            return rejections.none_started(state.figures(), waiter.session.key)
        return self._saturated("nothing fits right now")

    def has_room(self, session: Session | None, profile: CapabilityProfile, now: float) -> bool:
        """Whether ``place`` would serve a request with ``spawn="room"``, or start a worker for it."""
        state = self._state
        if self.has_worker(session, profile):
            return True
        if session is not None and (session.state is not SessionState.PARKED or session.waiting):
            return False
        kind = state.kinds.get(profile.signature) or _stranger(state, profile)
        return state.mode is Mode.RUNNING and state.quota_open and self._starts.has_room(kind, now)

    def has_worker(self, session: Session | None, profile: CapabilityProfile) -> bool:
        """Whether ``place`` would serve a request that may not wait; ``session`` None: one that is not known."""
        state = self._state
        if state.mode is not Mode.RUNNING:
            return False
        kind = state.kinds.get(profile.signature) or _stranger(state, profile)
        if session is None or session.state is SessionState.PARKED:
            if session is not None and session.waiting:
                return False
            quiet = None if kind.queued else state.index.match_quiet(kind)
            return state.quota_open and (state.index.match_free(kind) or quiet) is not None
        worker = session.worker
        if worker is None or not (worker.ordinary > 0 or state.quota_open):
            return False
        if session.state is SessionState.ACTIVE:
            return worker.serves(kind)
        return worker in state.index and not worker.drifted and worker.kind.serves(kind)

    def revisit(self, session: Session) -> None:
        """Look again at the waiting requests of one session."""
        state = self._state
        if session.state is SessionState.ACTIVE:
            self._leases.settle(session)
        elif session.state is SessionState.PARKED:
            state.requeue(session)
        elif session.worker is not None and session.worker in state.index:
            self._return_home(session, session.worker)

    def _return_home(self, session: Session, worker: Worker) -> None:
        """A parking session whose old worker is free: back to it, or if it does not fit, away with it."""
        state = self._state
        for waiter in session.in_order():
            if self._take_own(waiter):
                return
            if worker.drifted or not worker.kind.serves(waiter.kind):
                self._fleet.stop(worker, StopReason.RETIRED)
                return
            if not state.may_take(worker, waiter):
                state.gate_off(waiter)

    def _take_own(self, waiter: Waiter) -> bool:
        """Steps on the worker that has (or still keeps open) the session's conversation."""
        state = self._state
        session = waiter.session
        worker = session.worker
        if session.state is SessionState.ACTIVE:
            return self._leases.take_bound(waiter)
        if worker is None or worker not in state.index or state.mode is not Mode.RUNNING:
            return False
        if worker.drifted or not worker.kind.serves(waiter.kind) or not state.may_take(worker, waiter):
            return False
        self._leases.lease(worker, waiter)
        return True

    def _take_free(self, waiter: Waiter) -> bool:
        state = self._state
        if state.mode is not Mode.RUNNING or not (waiter.privileged or state.quota_open):
            return False
        worker = state.index.match_free(waiter.kind)
        if worker is None:
            return False
        self._leases.lease(worker, waiter)
        return True

    def _rebind_now(self, waiter: Waiter) -> bool:
        """Rebind for a request that does not wait; never past those who do."""
        state = self._state
        if state.mode is not Mode.RUNNING or waiter.kind.queued or not (waiter.privileged or state.quota_open):
            return False
        worker = state.index.match_quiet(waiter.kind)
        if worker is None:
            return False
        self._leases.lease(worker, waiter)
        return True

    def _admit(self, waiter: Waiter) -> bool:
        """Whether the request may wait; it is refused here if not."""
        state = self._state
        kind = waiter.kind
        if waiter.deadline <= state.now:
            state.expire(waiter)
            return False
        if waiter.session.state is SessionState.PARKED and kind.budget.broken and not self._rebinds_at_once(waiter):
            state.reject(waiter, rejections.broken(state.figures(), kind, state.now))
            return False
        if self._is_crowded(waiter) and state.waiting.lowest_below(waiter.priority) is None:
            state.reject(waiter, self._saturated("the waiting list is full"))
            return False
        return True

    def _is_crowded(self, waiter: Waiter) -> bool:
        """Whether the waiting list has no place for this request, which would need one."""
        state = self._state
        full = waiter.bounded and state.waiting.bounded >= state.settings.waiting_capacity
        return full and not self._rebinds_at_once(waiter)

    def _saturated(self, why: str) -> PoolSaturated:
        state = self._state
        return rejections.saturated(state.figures(), why, state.retry_after, state.pins())

    def _rebinds_at_once(self, waiter: Waiter) -> bool:
        """Whether the pump that follows will rebind a quiet worker to this request, or to one it takes the place of."""
        state = self._state
        kind = waiter.kind
        return (
            state.mode is Mode.RUNNING
            and waiter.session.state is SessionState.PARKED
            and (waiter.privileged or state.quota_open)
            and self._starts.gate_for(kind) is not None
            and state.index.match_quiet(kind) is not None
        )


def _stranger(state: State, profile: CapabilityProfile) -> Kind:
    """A profile that nobody has asked for yet, which others' workers may serve; it leaves no trace."""
    group = state.groups.get(profile.hard_signature) or Group()
    return Kind(profile, group, state.agents.get(profile.agent) or Agent(profile.agent))
