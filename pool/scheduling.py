"""Matches waiters and workers after every change: offers what was freed, and advances the queues.

The order for a waiter is the pool's order of acquiring: a free worker (exact, hard, superset); a new process; the
least recently used quiet worker that fits; a slot made by evicting one that does not. A step in which nothing has
become possible costs next to nothing.
"""

from collections.abc import Collection, Iterable
from itertools import chain, islice

from pool import rejections
from pool.admission import Admission
from pool.available import EVICTION_ORDER
from pool.binding import SessionBinder
from pool.budget import BreakerState
from pool.queues import ConditionQueue, ProfileQueue
from pool.records import ProfileRecord, Waiter, WorkerRecord
from pool.spawning import Spawner
from pool.state import PoolState
from pool.stimuli import StopReason
from pool.transitions import PoolMode, SessionState
from pool.workers import Workers


class Scheduler:
    """Matches waiters and workers."""

    def __init__(
        self, state: PoolState, starts: Spawner, fleet: Workers, leases: SessionBinder, placing: Admission
    ) -> None:
        self._state = state
        self._spawner = starts
        self._workers = fleet
        self._binder = leases
        self._admission = placing

    # --- after every change -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do all that has become possible."""
        state = self._state
        if state.waiting.queued or state.waiting.blocked:
            if state.mode is PoolMode.RUNNING:
                self._match()
            else:
                self._reject_room_only()
        state.freed.clear()
        state.touched.clear()

    def _match(self) -> None:
        """Bring waiters and workers together until nothing more can be done."""
        state = self._state
        waiting = state.waiting
        while True:
            freed, state.freed = state.freed, []
            for worker in freed:
                if worker in state.index.lru:
                    self._offer(worker)
            if waiting.ready.count or self._met_conditions():
                self._advance_queues()
            if state.deferred and self._resume_deferred():
                continue
            if not state.freed and not (waiting.room_only and self._reject_room_only()):
                break
        if waiting.nested:
            self._reject_nested()

    def wake_all(self) -> None:
        """Look at every waiter again, and at what is idle and might serve one, after a pause or new limits."""
        state = self._state
        queued = [kind for kind in state.profiles.values() if kind.queued]
        for kind in queued:
            state.waiting.wake(kind)
        serving = dict.fromkeys(chain.from_iterable(kind.group.profiles.values() for kind in queued))
        idle = chain.from_iterable((*kind.unbound, *kind.quiescent) for kind in serving)
        state.freed += sorted(idle, key=lambda worker: worker.idle_since)
        for session in {waiter.session.key: waiter.session for waiter in state.requests.values()}.values():
            self._admission.retry_session(session)

    def _resume_deferred(self) -> bool:
        """Let a request go on whose own worker only the reserve kept from it."""
        state = self._state
        waiter = state.next_deferred()
        if waiter is None or not state.quota_open:
            return False
        self._retry_deferred(waiter)
        return True

    def _retry_deferred(self, waiter: Waiter) -> None:
        self._state.drop_deferred(waiter)
        self._admission.retry_session(waiter.session)

    # --- a freed worker ---------------------------------------------------------------------------------------------

    def _offer(self, worker: WorkerRecord) -> None:
        """Give a freed worker to the best waiter it matches, unless a waiter it does not match has waited far longer.

        That is a waiter whose order is better by more than one ``age_step``: within a step a reset is preferred to a
        new process, beyond it a busy profile would starve the others.
        """
        state = self._state
        best = self._best_match(worker)
        if best is None:
            return
        rival = self._best_rival(worker)
        if rival is not None and not self._spawner.has_spare_token():
            rival = None
        if rival is not None and rival.sort_key + state.settings.age_step < best.sort_key:
            self._evict(worker, rival.profile_record)
            return
        gated = state.next_deferred()
        if gated is not None and not best.privileged and gated.rank < best.rank:
            self._retry_deferred(gated)
            state.freed.append(worker)
            return
        self._binder.bind(worker, best)

    def _best_match(self, worker: WorkerRecord) -> Waiter | None:
        """The best waiter that may have this worker; lines that only the reserve keeps from it go to its gate."""
        state = self._state
        if worker.drifted:
            return None
        quota_open = state.quota_open
        best: Waiter | None = None
        for kind in worker.profile_record.group.profiles.values():
            for line in kind.queues:
                if not line.size or not worker.profile_record.serves(kind):
                    continue
                if not (line.privileged or quota_open):
                    state.waiting.quota.add(line)
                    continue
                head = line.head()
                if head is not None and (best is None or head.rank < best.rank):
                    best = head
        return best

    def _best_rival(self, worker: WorkerRecord) -> Waiter | None:
        """The best waiter that could only be served by the slot of this worker."""
        best: Waiter | None = None
        agent = worker.profile_record.agent
        for gate in (self._state.waiting.pool_full, agent.condition, agent.place.condition):
            line = gate.peek()
            head = line.head() if line is not None and (line.privileged or self._state.quota_open) else None
            if head is not None and (best is None or head.rank < best.rank):
                best = head
        return best

    # --- the lines --------------------------------------------------------------------------------------------------

    def _advance_queues(self) -> None:
        """Advance the best line that can be, until none can."""
        closed: set[ConditionQueue] = set()
        while (gate := self._next_condition(closed)) is not None:
            line = gate.pop()
            if line is None:
                continue
            kept = self._advance(line)
            if kept is not None:
                kept.add(line)
                closed.add(kept)
                place = line.profile_record.agent.place
                if kept is place.condition and kept.count == 1:
                    self._state.notify("group_full", group=place.group, slots=place.slots)

    def _next_condition(self, closed: set[ConditionQueue]) -> ConditionQueue | None:
        """The gate whose best line comes first, among those that are open in this step."""
        best: tuple[float, int] | None = None
        found: ConditionQueue | None = None
        for gate in (self._state.waiting.ready, *self._met_conditions()):
            line = gate.peek() if gate not in closed else None
            if line is not None and (best is None or line.condition_rank < best):
                best, found = line.condition_rank, gate
        return found

    def _met_conditions(self) -> list[ConditionQueue]:
        """The gates, besides the one for ready lines, at which a line waits for what there is now."""
        state = self._state
        waiting = state.waiting
        gates = []
        if waiting.pool_full.count and self._can_make_slot():
            gates.append(waiting.pool_full)
        if waiting.tokens.count and state.bucket.has_token(state.now):
            gates.append(waiting.tokens)
        if waiting.quota.count and state.quota_open:
            gates.append(waiting.quota)
        for kind in state.touched:
            agent = kind.agent
            gates.extend(gate for gate in (agent.condition, agent.place.condition) if gate.count)
        return gates

    def _can_make_slot(self) -> bool:
        """Whether a line at the full gate could be advanced: a slot, one that is coming, or a worker to evict."""
        state = self._state
        free = state.places.limit - len(state.workers)
        if free > 0:
            return True
        unclaimed = free + len(state.stopping) - state.claimed_slots
        if unclaimed or state.index.lru:
            return unclaimed >= 0
        return len(state.pinned) > max(0, state.most_pinned)

    def _advance(self, line: ProfileQueue) -> ConditionQueue | None:
        """Bring the best waiter of the line one step further; returns the gate that keeps the line, if one does."""
        state = self._state
        kind = line.profile_record
        waiter = line.head()
        if waiter is None:
            return None
        if not (line.privileged or state.quota_open):
            return state.waiting.quota
        worker = state.index.match_unbound(kind)
        if worker is not None:
            self._binder.bind(worker, waiter)
        elif not self._has_all_claims(kind):
            return self._supply(line, waiter)
        self._recheck(line)
        return None

    def _supply(self, line: ProfileQueue, waiter: Waiter) -> ConditionQueue | None:
        """Nothing is free for the line and nothing on its way: start, rebind, refuse or evict, in this order."""
        state = self._state
        kind = line.profile_record
        gate = self._spawner.blocking_condition(kind)
        if gate is None:
            near = "" if kind.claims else waiter.session.node  # the best waiter has its start already
            self._spawner.spawn(kind, covers=kind, near=near)
        elif (worker := state.index.match_quiescent(kind)) is not None:
            self._binder.bind(worker, waiter)
        elif (modest := self._newest_room_only(line)) is not None:
            self._reject_no_room(modest)
        elif kind.budget.is_open:
            state.reject(waiter, rejections.broken(state.counts(), kind, state.now))
        elif gate is state.waiting.pool_full and not (waiter.nested or self._spawner.has_spare_token()):
            return state.waiting.tokens  # no worker stops for a start that is not allowed yet
        elif not self._make_room(kind, gate):
            if gate is kind.condition or not _is_trial(kind):
                return gate
            state.reject(waiter, rejections.no_trial(state.counts(), kind))
        self._recheck(line)
        return None

    def _recheck(self, line: ProfileQueue) -> None:
        """Look at the line once more in this step, unless all its waiters are served or covered.

        While only the reserve is left, a cover that was meant for the ordinary line may count for the privileged one;
        the ordinary line then waits at the quota's gate to be counted again.
        """
        state = self._state
        if line.size and not self._has_all_claims(line.profile_record):
            state.waiting.ready.add(line)
        ordinary = line.profile_record.queues[False]
        if ordinary.size and ordinary.condition is None and not state.quota_open:
            state.waiting.quota.add(ordinary)

    def _has_all_claims(self, kind: ProfileRecord) -> bool:
        """Whether a worker is on its way to every waiter of the kind; spare ones of the group are taken over."""
        demand = self._spawner.demand(kind)
        while kind.claims < demand:
            if not self._spawner.reassign_start(kind):
                return False
        return True

    def _make_room(self, kind: ProfileRecord, gate: ConditionQueue) -> bool:
        """Mean a slot for the kind: one that is coming already, or that of the least recently used worker."""
        state = self._state
        agent = kind.agent
        candidates: Iterable[WorkerRecord] = ()
        slots: Collection[WorkerRecord] = ()
        spare = 0.0
        if gate is state.waiting.pool_full:
            candidates, slots = state.index.lru, state.unclaimed_slots
            spare = state.places.limit - len(state.workers) + len(slots)
        elif gate is agent.condition:
            candidates, slots = agent.available, agent.unclaimed_slots
            spare = state.settings.max_per_agent - agent.live + len(slots)
        elif gate is agent.place.condition:
            candidates, slots = agent.place.available(), list(agent.place.unclaimed_slots())
            spare = agent.place.slots - agent.place.live + len(slots)
        elif gate is not kind.condition or not state.stopping.keys().isdisjoint(kind.workers.keys()):
            return False
        if spare > 0 and slots:
            state.claim_slot(next(iter(slots)), kind)
            return True
        if spare < 0 or _is_trial(kind):
            return False
        victim = next(EVICTION_ORDER(candidates), None)
        if victim is not None:
            self._evict(victim, kind)
            return True
        pinned = state.excess_pinned(kind, gate)
        if pinned is not None:
            self._evict(pinned, kind, StopReason.UNPINNED)
        return pinned is not None

    def _evict(self, worker: WorkerRecord, kind: ProfileRecord, reason: StopReason = StopReason.EVICTED) -> None:
        """Stop a worker to make room for one of ``kind``."""
        state = self._state
        state.counters.evicted += 1
        self._workers.stop(worker, reason)
        state.claim_slot(worker, kind)
        state.notify("worker_evicted", worker=worker.id, wanted=kind.profile.short)

    # --- requests that take only room -------------------------------------------------------------------------------

    def _newest_room_only(self, line: ProfileQueue) -> Waiter | None:
        """The newest of the line's waiters that take only room: it gives way before another has to wait or stop."""
        waiters = self._state.waiting.room_only.get(line)
        return next(reversed(waiters.values())) if waiters else None

    def _reject_room_only(self) -> bool:
        """Refuse those for whom nothing is being started any more; whether there were any."""
        state = self._state
        is_running = state.mode is PoolMode.RUNNING
        groups = state.waiting.room_only.items()
        hopeless = [waiters for line, waiters in groups if not is_running or line is None or line.condition]
        refused = [waiter for waiters in hopeless for waiter in waiters.values()]
        for waiter in refused:
            self._reject_no_room(waiter)
        return bool(refused)

    def _reject_no_room(self, waiter: Waiter) -> None:
        state = self._state
        state.reject(waiter, rejections.no_room(state.counts(), waiter.profile_record, state.retry_after))

    # --- nested runs ------------------------------------------------------------------------------------------------

    def _reject_nested(self) -> None:
        """Refuse nested requests for whom nothing is on its way: they might wait for their own ancestor."""
        state = self._state
        refused: list[Waiter] = []
        for kind, waiters in state.waiting.nested.items():
            if kind is None:
                refused += filter(_is_held_up, waiters.values())
            elif len(waiters) > kind.claims and not self._is_delayed(kind):
                refused += islice(waiters.values(), kind.claims, None)
        for waiter in refused:
            state.reject(waiter, rejections.nested_saturated(state.counts(), state.pinned_sessions()))

    def _is_delayed(self, kind: ProfileRecord) -> bool:
        """Whether a worker for a nested request of the kind will be started after a time, whatever the others do."""
        gate = kind.queues[True].condition
        delayed = gate is self._state.waiting.tokens or (gate is kind.condition and not kind.budget.is_open)
        return delayed and len(self._state.workers) < self._state.places.limit


def _is_held_up(waiter: Waiter) -> bool:
    """Whether a blocked request waits for the end of a turn."""
    session = waiter.session
    worker = session.worker
    return session.state is SessionState.ACTIVE and worker is not None and worker.preparation is None


def _is_trial(kind: ProfileRecord) -> bool:
    """Whether a start of the kind would try out what has failed again and again: no healthy worker stops for it."""
    return kind.budget.state is BreakerState.HALF_OPEN
