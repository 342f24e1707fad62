"""What must hold in a simulation: the part that is cheap after every event, the whole of it now and then, and at rest.

The world beside the machine objects by itself to two outcomes, foreign transcripts, too many processes and workers
taken from somebody in the middle of something (I1, I2, I3, I8); here is the rest.
"""

import heapq
from collections import deque
from typing import TYPE_CHECKING

from pool import invariants, stimuli
from pool.stimuli import Action
from pool.transitions import PoolMode, WaiterState, WorkerState

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


FULL_SCAN_EVERY = 1000
_ROUNDING = 1e-6
_FAILED_OF_LATE = 40
"""Profiles that nobody uses may be remembered for a minute after a failure."""


class Promises:
    """Looks at one simulation; every method raises AssertionError with what is wrong."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        self.steps = 0
        self._deadlines: list[tuple[float, str]] = []
        self._spawns: deque[float] = deque(maxlen=sim.settings.spawn_burst * sim.starters + 1)

    def new_life(self) -> None:
        """The supervisor begins anew, and its spawn bucket with it."""
        self._spawns.clear()

    def asked(self, request: str, deadline: float) -> None:
        """From now on the request must end by its deadline."""
        heapq.heappush(self._deadlines, (deadline, request))

    # --- after every event ------------------------------------------------------------------------------------------

    def check(self, happened: list[Action]) -> None:
        """What can be checked without looking at everything; every so often, everything."""
        self.steps += 1
        self._check_counts()
        self._check_time()
        self._check_lines()
        for action in happened:
            if isinstance(action, stimuli.Reset):
                self._check_order(action.worker)
            elif isinstance(action, stimuli.Spawn):
                self._check_rate()
        if self.steps % FULL_SCAN_EVERY == 0:
            self.scan()

    def _check_counts(self) -> None:
        """I3 and I10: status is what there is, grants are releases and holds in force."""
        sim, state = self.sim, self.sim.machine._state
        counters = state.counters
        workers, requests, holds = len(sim.workers), len(sim.open_requests), len(sim.holds)
        granted, ended = sum(counters.grants.values()), counters.releases + counters.lost
        assert workers <= sim.settings.max, f"there are {workers} workers, {sim.settings.max} may be"
        assert len(state.workers) == workers, f"{len(state.workers)} workers are counted, there are {workers}"
        assert len(state.requests) == requests, f"{len(state.requests)} requests are open by its books, {requests} are"
        assert len(state.holds) == holds, f"{len(state.holds)} holds are in force by its books, {holds} are"
        assert granted == ended + holds, f"{granted} grants, but {ended} have ended and {holds} are in force"

    def _check_time(self) -> None:
        """I6: nothing is overdue, and nobody waits beyond its deadline."""
        sim, deadlines = self.sim, self._deadlines
        due = sim.machine.next_wakeup()
        assert due is None or due >= sim.now, f"something was due at {due}"
        while deadlines and deadlines[0][0] <= sim.now:
            deadline, request = heapq.heappop(deadlines)
            assert request not in sim.open_requests, f"{request} still waits, its deadline was {deadline}"

    def _check_lines(self) -> None:
        """I6 and I9: nobody waits beside a worker that fits, and every line is looked at when something changes."""
        state = self.sim.machine._state
        if not state.waiting.queued or state.mode is not PoolMode.RUNNING:
            return
        invariants._check_no_waiter_has_a_match(state)
        free = [w for w in state.workers.values() if w.session is None and w.state is WorkerState.IDLE]
        quota_open = state.quota_open
        for kind in state.profiles.values():
            for line in kind.queues:
                if line.size and (line.privileged or quota_open):
                    short = kind.profile.short
                    assert line.condition is not None or kind.claims >= line.size, f"{short} is not looked at"
                    assert all(w.drifted or not w.profile_record.serves(kind) for w in free), (
                        f"{short} waits beside a free one"
                    )

    def _check_order(self, name: str) -> None:
        """I5: nobody of the same profile and privilege was passed over by whoever this reset is for."""
        preparation = self.sim.machine._state.workers[name].preparation
        if preparation is None or not preparation.waiters:
            return
        best = min(preparation.waiters.values(), key=lambda waiter: waiter.rank)
        head = best.profile_record.queues[best.privileged].head()
        assert head is None or best.rank < head.rank, f"{best.request} was served before {head.request}"

    def _check_rate(self) -> None:
        """I9: no window has more starts than the bucket allows."""
        spawns, settings, starters = self._spawns, self.sim.settings, self.sim.starters
        spawns.append(self.sim.now)
        if len(spawns) > settings.spawn_burst * starters:
            earliest = spawns[0] + 1 / (settings.spawn_rate * starters) - _ROUNDING
            assert spawns[-1] >= earliest, f"{len(spawns)} starts since {spawns[0]}"

    # --- now and then -----------------------------------------------------------------------------------------------

    def scan(self) -> None:
        """Everything, and by name: the machine's own audit, its books beside the world's, how large it has grown."""
        sim, state = self.sim, self.sim.machine._state
        sim.machine.validate()
        snapshot = sim.machine.snapshot(sim.now)
        assert {worker.id for worker in snapshot.workers} == set(sim.workers)
        assert set(state.requests) == set(sim.open_requests)
        assert {request: held.hold for request, held in state.holds.items()} == sim.holds
        assert set(state.lost_holds) == set(sim.void)
        for worker in snapshot.workers:
            paper = sim.workers[worker.id]
            assert (worker.state == "starting") == (not paper.ready and not paper.stopping), worker
            assert (worker.state == "stopping") == paper.stopping, worker
            assert worker.background == paper.background or paper.stopping, worker
        if state.mode is PoolMode.RUNNING:
            self._check_blocked()
        self._check_size()

    def _check_blocked(self) -> None:
        """I6: nobody waits for its own session's worker while that could serve it, or could go."""
        state = self.sim.machine._state
        for waiter in state.requests.values():
            worker = waiter.session.worker
            if waiter.state is not WaiterState.BLOCKED or worker is None or worker.preparation is not None:
                continue
            if worker.state in (WorkerState.IDLE, WorkerState.LEASED) and state.reserve_allows(worker, waiter):
                fits = worker.serves(waiter.profile_record)
                assert not fits or worker.soft != waiter.profile_record.profile.soft, (
                    f"{waiter.request} waits beside its own"
                )
                assert not worker.quiescent, f"{waiter.request} waits behind nobody"

    def _check_size(self) -> None:
        """I7: what the machine keeps is bounded by what it is in the middle of, however long it has gone on."""
        sim, state = self.sim, self.sim.machine._state
        live = len(state.timers)
        in_the_middle = 2 * len(state.workers) + len(state.requests) + len(sim.busy)
        assert len(state.timers._heap) <= 2 * live + 130, f"{len(state.timers._heap)} timers for {live} live ones"
        assert live <= in_the_middle + 2 * len(state.profiles) + 10
        assert len(state.sessions) <= sim.scale.sessions + in_the_middle
        assert len(state.profiles) <= len(sim.profiles) + in_the_middle + _FAILED_OF_LATE
        assert len(state.deferred) <= 2 * len(state.requests) + 130

    # --- at the end -------------------------------------------------------------------------------------------------

    def check_books(self) -> None:
        """I1 and I10: every request has ended in exactly one way, by the machine's counters and by ours."""
        sim = self.sim
        counters = sim.machine._state.counters
        assert not sim.holds
        assert len(sim.ended) == sim.request_count, "somebody has no outcome"
        assert sum(counters.grants.values()) == counters.releases + counters.lost
        assert dict(counters.grants) == dict(sim.tally.grants)
        assert (counters.expired, counters.refused) == (sim.tally.expired, sim.tally.refused)
        assert counters.spawned - sum(counters.exits.values()) == len(sim.workers)

    def check_rest(self) -> None:
        """I7: long after the last request nothing is left but what is kept on purpose."""
        sim, state = self.sim, self.sim.machine._state
        self.scan()
        for books in (state.requests, state.holds, state.lost_holds, state.stopping):
            assert not books
        assert all(session.transcript for session in state.sessions.values()), "a session of nobody's is remembered"
        assert all(not kind.is_unused for kind in state.profiles.values()), "a profile that nobody uses is remembered"
        if not sim.settings.max_age:
            assert len(state.workers) <= sim.settings.min, f"{len(state.workers)} workers are kept for nobody"
