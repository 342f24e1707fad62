"""Pump: match waiters and workers; prewarm.

Who gets which worker, after every change: offering what was freed, advancing the lines of those who wait.

The order for a waiter is the pool's order of acquiring: a free worker (exact, hard, superset); a new process; the
least recently used quiet worker that fits; a slot made by evicting one that does not. A step in which nothing has
become possible costs next to nothing.

Workers for nobody in particular: what was lost is started again, and what is to be kept warm is kept warm.
"""

from collections import OrderedDict
from collections.abc import Iterable

from pool import rejections
from pool.admission import Placing
from pool.binding import Leases
from pool.budget import BreakerState
from pool.records import Kind, Worker
from pool.spawning import Starts
from pool.state import State
from pool.states import Mode, SessionState, WaiterState
from pool.stimuli import StopReason
from pool.waiting_list import Gate, Line, Waiter
from pool.workers import Fleet
from profiles.profile import CapabilityProfile


class Pump:
    """Matches waiters and workers."""

    def __init__(self, state: State, starts: Starts, fleet: Fleet, leases: Leases, placing: Placing) -> None:
        self._state = state
        self._starts = starts
        self._fleet = fleet
        self._leases = leases
        self._placing = placing

    # --- after every change -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do all that has become possible."""
        state = self._state
        waiting = state.waiting
        if state.mode is not Mode.RUNNING:
            state.freed.clear()
            state.touched_agents.clear()
            self._refuse_room_only()
            return
        while True:
            if state.freed:
                self._offer_freed()
            if waiting.ready.count or self._open_gates():
                self._advance_lines()
            if not (state.gated and self._open_gated()) and not state.freed and not self._refuse_room_only():
                break
        state.touched_agents.clear()
        if waiting.nested:
            self._refuse_nested()

    def wake_all(self) -> None:
        """Look at everything again, after a pause or new limits."""
        state = self._state
        state.freed.extend(state.index.lru)
        for kind in state.kinds.values():
            state.waiting.wake(kind)
        for session in {waiter.session.key: waiter.session for waiter in state.requests.values()}.values():
            self._placing.revisit(session)

    def _open_gated(self) -> bool:
        """Let a request go on whose own worker only the reserve kept from it."""
        state = self._state
        waiter = state.next_gated()
        if waiter is None or not state.quota_open:
            return False
        self._pass_gated(waiter)
        return True

    def _pass_gated(self, waiter: Waiter) -> None:
        self._state.drop_gated(waiter)
        self._placing.revisit(waiter.session)

    # --- a freed worker ---------------------------------------------------------------------------------------------

    def _offer_freed(self) -> None:
        state = self._state
        freed, state.freed = state.freed, []
        for worker in freed:
            if worker in state.index:
                self._offer(worker)

    def _offer(self, worker: Worker) -> None:
        """Give a freed worker to the best waiter it matches, unless somebody it does not match is far worse off.

        That is a waiter whose order is better by more than one ``age_step``: within a step a reset is preferred to a
        new process, beyond it a busy profile would starve the others.
        """
        state = self._state
        best = self._best_match(worker)
        if best is None:
            return
        rival = self._best_rival(worker)
        if rival is not None and not self._starts.has_token_to_spare():
            rival = None
        if rival is not None and rival.key + state.settings.age_step < best.key:
            self._evict(worker, rival.kind)
            return
        gated = state.next_gated()
        if gated is not None and not best.privileged and gated.rank < best.rank:
            self._pass_gated(gated)
            state.freed.append(worker)
            return
        self._leases.lease(worker, best)

    def _best_match(self, worker: Worker) -> Waiter | None:
        """The best waiter that may have this worker; lines that only the reserve keeps from it go to its gate."""
        state = self._state
        if worker.drifted:
            return None
        quota_open = state.quota_open
        best: Waiter | None = None
        for kind in worker.kind.group.kinds.values():
            for line in kind.lines:
                if not line.size or not worker.kind.serves(kind):
                    continue
                if not (line.privileged or quota_open):
                    state.waiting.quota.add(line)
                    continue
                head = line.head()
                if head is not None and (best is None or head.rank < best.rank):
                    best = head
        return best

    def _best_rival(self, worker: Worker) -> Waiter | None:
        """The best waiter that could only be served by the slot of this worker."""
        best: Waiter | None = None
        for gate in (self._state.waiting.full, worker.kind.agent.gate):
            line = gate.best()
            head = line.head() if line is not None and self._may_advance(line) else None
            if head is not None and (best is None or head.rank < best.rank):
                best = head
        return best

    # --- the lines --------------------------------------------------------------------------------------------------

    def _may_advance(self, line: Line) -> bool:
        return line.privileged or self._state.quota_open

    def _advance_lines(self) -> None:
        """Advance the best line that can be, until none can."""
        closed: set[Gate] = set()
        while (gate := self._best_open_gate(closed)) is not None:
            line = gate.take()
            if line is None:
                continue
            kept = self._advance(line)
            if kept is not None:
                kept.add(line)
                closed.add(kept)

    def _best_open_gate(self, closed: set[Gate]) -> Gate | None:
        """The gate whose best line comes first, among those that are open in this step."""
        best: tuple[float, int] | None = None
        found: Gate | None = None
        for gate in (self._state.waiting.ready, *self._open_gates()):
            line = gate.best() if gate not in closed else None
            if line is not None and (best is None or line.gate_rank < best):
                best, found = line.gate_rank, gate
        return found

    def _open_gates(self) -> list[Gate]:
        """The gates, besides the one for ready lines, at which somebody waits for what there is now."""
        state = self._state
        waiting = state.waiting
        gates = []
        if waiting.full.count and self._has_room():
            gates.append(waiting.full)
        if waiting.tokens.count and state.bucket.ready(state.now):
            gates.append(waiting.tokens)
        if waiting.quota.count and state.quota_open:
            gates.append(waiting.quota)
        if state.touched_agents:
            gates.extend(agent.gate for agent in state.touched_agents if agent.gate.count)
        return gates

    def _has_room(self) -> bool:
        """Whether a line at the full gate could be advanced: a slot, one that is coming, or a worker to evict."""
        state = self._state
        free = state.settings.max - len(state.workers)
        if free > 0:
            return True
        unclaimed = free + len(state.stopping) - state.claims
        most = state.settings.max_pinned or state.settings.max - 1
        return unclaimed > 0 or (unclaimed == 0 and (len(state.index.lru) > 0 or len(state.pinned) > most))

    def _advance(self, line: Line) -> Gate | None:
        """Bring the best waiter of the line one step further; returns the gate that keeps the line, if one does."""
        state = self._state
        kind = line.kind
        waiter = line.head()
        if waiter is None:
            return None
        if not self._may_advance(line):
            return state.waiting.quota
        worker = state.index.match_free(kind)
        if worker is not None:
            self._leases.lease(worker, waiter)
        elif not self._covered(kind):
            return self._supply(line, waiter)
        self._again(line)
        return None

    def _supply(self, line: Line, waiter: Waiter) -> Gate | None:
        """Nothing is free for the line and nothing on its way: start, rebind, refuse or evict, in this order."""
        state = self._state
        kind = line.kind
        gate = self._starts.gate_for(kind)
        if gate is None:
            self._starts.spawn(kind, covers=kind)
        elif (worker := state.index.match_quiet(kind)) is not None:
            self._leases.lease(worker, waiter)
        elif (modest := self._room_only_in(line)) is not None:
            self._refuse_for_room(modest)
        elif kind.budget.broken:
            state.reject(waiter, rejections.broken(state.figures(), kind, state.now))
        elif gate is state.waiting.full and not (waiter.nested or self._starts.has_token_to_spare()):
            return state.waiting.tokens  # nobody stops for a start that is not allowed yet
        elif not self._make_room(kind, gate):
            if gate is kind.gate or not _is_trial(kind):
                return gate
            state.reject(waiter, rejections.no_trial(state.figures(), kind))
        self._again(line)
        return None

    def _again(self, line: Line) -> None:
        """Look at the line once more in this step, unless all its waiters are served or covered.

        While only the reserve is left, a cover that was meant for the ordinary line may count for the privileged one;
        the ordinary line then waits at the quota's gate to be counted again.
        """
        state = self._state
        if line.size and not self._covered(line.kind):
            state.waiting.ready.add(line)
        ordinary = line.kind.lines[False]
        if ordinary.size and ordinary.gate is None and not state.quota_open:
            state.waiting.quota.add(ordinary)

    def _covered(self, kind: Kind) -> bool:
        """Whether a worker is on its way to every waiter of the kind; spare ones of the group are taken over."""
        demand = self._starts.demand(kind)
        while kind.covered < demand:
            if not self._starts.share(kind):
                return False
        return True

    def _make_room(self, kind: Kind, gate: Gate) -> bool:
        """Mean a slot for the kind: one that is coming already, or that of the least recently used worker."""
        state = self._state
        starts = self._starts
        if gate is state.waiting.full:
            candidates, spare = state.index.lru, starts.slots_coming - state.claims
        elif gate is kind.agent.gate:
            limit = state.settings.max_per_agent
            stopping = [worker for worker in state.stopping if worker.kind.agent is kind.agent]
            coming = limit - (kind.agent.live - len(stopping))
            candidates, spare = kind.agent.available, coming - sum(worker.covers is not None for worker in stopping)
        elif gate is kind.gate and not any(worker.kind is kind for worker in state.stopping):
            candidates, spare = OrderedDict(), 0
        else:
            return False
        if spare > 0 and starts.claim(kind, state.stopping):
            return True
        if spare < 0 or _is_trial(kind):
            return False
        if candidates:
            self._evict(next(iter(candidates)), kind)
            return True
        pinned = state.one_pinned_too_many(kind, gate)
        if pinned is not None:
            self._evict(pinned, kind, StopReason.UNPINNED)
        return pinned is not None

    def _evict(self, worker: Worker, kind: Kind, reason: StopReason = StopReason.EVICTED) -> None:
        """Stop a worker to make room for one of ``kind``."""
        state = self._state
        state.counters.evicted += 1
        self._fleet.stop(worker, reason)
        self._starts.cover_by_stopping(worker, kind)
        state.notify("worker_evicted", worker=worker.id, wanted=kind.profile.short)

    # --- requests that take only room -------------------------------------------------------------------------------

    def _room_only_in(self, line: Line) -> Waiter | None:
        """The newest of the line's waiters that take only room: it gives way before another has to wait or stop."""
        newest_first = reversed(self._state.waiting.room_only.values())
        lines = ((waiter, waiter.kind.lines[waiter.privileged]) for waiter in newest_first)
        return next((waiter for waiter, own in lines if own is line and waiter.state is WaiterState.QUEUED), None)

    def _refuse_room_only(self) -> bool:
        """Refuse those for whom nothing is being started any more; whether there were any."""
        state = self._state
        is_running = state.mode is Mode.RUNNING
        refused = [
            waiter
            for waiter in state.waiting.room_only.values()
            if not is_running or waiter.state is WaiterState.BLOCKED or waiter.kind.lines[waiter.privileged].gate
        ]
        for waiter in refused:
            self._refuse_for_room(waiter)
        return bool(refused)

    def _refuse_for_room(self, waiter: Waiter) -> None:
        state = self._state
        state.reject(waiter, rejections.no_room(state.figures(), waiter.kind, state.retry_after))

    # --- nested runs ------------------------------------------------------------------------------------------------

    def _refuse_nested(self) -> None:
        """Refuse nested requests for whom nothing is on its way: they might wait for their own ancestor."""
        state = self._state
        promised: dict[Kind, int] = {}
        for waiter in list(state.waiting.nested.values()):
            if self._hopeless(waiter, promised):
                state.reject(waiter, rejections.nested_saturated(state.figures(), state.pins()))

    def _hopeless(self, waiter: Waiter, promised: dict[Kind, int]) -> bool:
        session = waiter.session
        kind = waiter.kind
        if waiter.state is WaiterState.BLOCKED:
            worker = session.worker
            return session.state is SessionState.ACTIVE and worker is not None and worker.preparation is None
        promised[kind] = promised.get(kind, 0) + 1
        if promised[kind] <= kind.covered:
            return False
        gate = kind.lines[True].gate
        delayed = gate is self._state.waiting.tokens or (gate is kind.gate and not kind.budget.broken)
        return not (delayed and len(self._state.workers) < self._state.settings.max)


def _is_trial(kind: Kind) -> bool:
    """Whether a start of the kind would try out what has failed again and again: no healthy worker stops for it."""
    return kind.budget.state is BreakerState.HALF_OPEN


class Upkeep:
    """Runs after the pump, so that it only ever uses room that no waiter wants."""

    def __init__(self, state: State, starts: Starts) -> None:
        self._state = state
        self._starts = starts

    def set_targets(self, targets: tuple[tuple[CapabilityProfile, int], ...]) -> None:
        """Replace the list of profiles to keep warm."""
        state = self._state
        old = state.targets
        for kind in old:
            kind.target = 0
        for profile, count in targets:
            state.kind_of(profile).target = count
        state.targets = tuple({state.kind_of(profile): None for profile, count in targets if count > 0})
        for kind in old:
            state.prune(kind)

    def give_up(self, kinds: Iterable[Kind]) -> None:
        """Neither keep these kinds warm nor start again what was lost of them."""
        state = self._state
        for kind in kinds:
            kind.target = 0
            self._starts.forgive_kind(kind)
            state.prune(kind)
        state.targets = tuple(kind for kind in state.targets if kind.target)

    def run(self) -> None:
        """Start what is owed and what is missing, as far as limits and budgets allow."""
        state = self._state
        if not (state.owed or state.targets) or state.mode is not Mode.RUNNING:
            return
        if self._starts.slots_coming <= 0:
            self._starts.forgive()
        if len(state.workers) >= state.settings.max:
            return
        for kind in list(state.owed):
            while kind.owed and self._starts.gate_for(kind) is None:
                self._starts.spawn(kind)
        for kind in state.targets:
            missing = kind.target - len(kind.free) - _spare_starts(kind)
            while missing > 0 and self._starts.gate_for(kind) is None:
                self._starts.spawn(kind)
                missing -= 1


def _spare_starts(kind: Kind) -> int:
    """Starting workers of the kind that nobody waits for."""
    return sum(worker.kind is kind and worker.covers is None for worker in kind.group.starting)
