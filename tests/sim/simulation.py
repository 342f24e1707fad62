"""Load and faults around the machine in virtual time: what ``World`` records on paper, this makes happen by chance."""

import heapq
import itertools
import random
from collections.abc import Callable

from errors import AcquireTimeout
from pool import actions, stimuli
from pool.actions import Action
from pool.stimuli import FailureKind
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile

PRIORITIES = (3, 5, 10)
FULL_SCAN_EVERY = 1000


def eight_profiles() -> list[CapabilityProfile]:
    """Three hard groups; in the first, models and skills differ, so that every match level occurs."""
    return [
        make_profile("a"),
        make_profile("a", model="large"),
        make_profile("a", skills=("web",)),
        make_profile("a", skills=("web", "files")),
        make_profile("b"),
        make_profile("b", model="large"),
        make_profile("c", agent="helper"),
        make_profile("d", agent="helper"),
    ]


def zipf(count: int, exponent: float = 1.1) -> list[float]:
    """Cumulative weights of ranks 1..count."""
    return list(itertools.accumulate(1 / rank**exponent for rank in range(1, count + 1)))


class Faults:
    """How often what goes wrong; each a probability per occasion."""

    def __init__(self, *, start: float = 0.02, reset: float = 0.01, death: float = 0.005, cancel: float = 0.03) -> None:
        self.start = start
        self.reset = reset
        self.death = death
        self.cancel = cancel


class Simulation(World):
    """Sessions that ask for turns at random, workers that take their time and sometimes die.

    Args:
        seed: every choice follows from it.
        sessions: known from the start, each with a transcript.
        utilisation: turns asked for, as a share of what ``max`` workers can do.
        faults: how often what goes wrong.
        turn: mean seconds of a turn.
        strays: share of requests that come with another profile than the session's usual one.
    """

    def __init__(
        self,
        seed: int,
        *,
        sessions: int,
        utilisation: float,
        faults: Faults,
        turn: float = 2.0,
        strays: float = 0.0,
        **settings: object,
    ) -> None:
        super().__init__(seed=seed, now=0.0, **settings)
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = faults
        self.turn = turn
        self.strays = strays
        self.profiles = eight_profiles()
        self.session_names = [f"s{number}" for number in range(sessions)]
        self.session_weights = zipf(sessions)
        self.profile_of = self.rng.choices(self.profiles, cum_weights=zipf(len(self.profiles)), k=sessions)
        self.arrivals_per_second = utilisation * self.settings.max / turn
        self.agenda: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self.numbers = itertools.count()
        self.steps = 0
        self.timeouts = 0
        self.waits: dict[int, list[float]] = {priority: [] for priority in PRIORITIES}
        self.asked: dict[str, tuple[float, int]] = {}
        for name in self.session_names:
            self.tell(stimuli.SessionKnown(name, f"{name}.jsonl"))

    # --- the course of events ---------------------------------------------------------------------------------------

    def after(self, delay: float, what: Callable[..., object], *arguments: object) -> None:
        heapq.heappush(self.agenda, (self.now + delay, next(self.numbers), what, arguments))

    def run(self, requests: int) -> None:
        """Send so many requests, then let everything come to an end."""
        self.left = requests
        self.after(0.0, self.arrive)
        self.finish()

    def finish(self) -> None:
        """Let everything come to an end, and compare the books."""
        while self.agenda or self.open_requests:
            due = self.machine.next_wakeup()
            assert self.agenda or due is not None, f"stuck with {sorted(self.open_requests)}"
            if due is not None and (not self.agenda or due <= self.agenda[0][0]):
                self.now = max(self.now, due)
                self.tell(stimuli.Tick())
            else:
                when, _, what, arguments = heapq.heappop(self.agenda)
                self.now = max(self.now, when)
                what(*arguments)
        self.machine.validate()
        self.check_books()

    def crowd(self, requests: int) -> None:
        """Everybody at once."""
        self.left = 0
        for _ in range(requests):
            self.ask()

    def arrive(self) -> None:
        self.left -= 1
        if self.left > 0:
            self.after(self.rng.expovariate(self.arrivals_per_second), self.arrive)
        self.ask()

    def ask(self) -> None:
        number = self.rng.choices(range(len(self.session_names)), cum_weights=self.session_weights)[0]
        priority = self.rng.choice(PRIORITIES)
        profile = self.profile_of[number]
        if self.rng.random() < self.strays:
            profile = self.rng.choice(self.profiles)
        self.asked[f"r{self.request_count + 1}"] = (self.now, priority)
        request = self.acquire(self.session_names[number], profile, priority=priority, bounded=self.rng.random() < 0.5)
        if self.rng.random() < self.faults.cancel:
            self.after(self.rng.expovariate(1.0), self.change_mind, request)

    def change_mind(self, request: str) -> None:
        if request in self.open_requests or request in self.holds:
            self.cancel(request)

    def end_turn(self, request: str) -> None:
        if request in self.holds or request in self.void:
            session = (self.holds.get(request) or self.void[request]).session
            undelivered = self.rng.random() < 0.1
            if undelivered:
                self.set_busy(session)
                self.after(self.rng.expovariate(10.0), self.set_quiet, session)
            self.release(request)

    # --- processes --------------------------------------------------------------------------------------------------

    def tell(self, stimulus: stimuli.Stimulus) -> list[Action]:
        happened = super().tell(stimulus)
        for action in happened:
            self._schedule(action)
        self._check_step(happened)
        return happened

    def _schedule(self, action: Action) -> None:
        rng = self.rng
        match action:
            case actions.Spawn():
                self.after(0.1 + rng.expovariate(4.0), self.come_up, action.worker)
            case actions.Reset():
                self.after(0.002 + rng.expovariate(500.0), self.finish_reset, action.worker, action.resume_from)
            case actions.Reconcile():
                self.after(0.001, self.finish_reconcile, action.worker)
            case actions.Grant():
                self.after(rng.expovariate(1 / self.turn), self.end_turn, action.request)
                asked_at, priority = self.asked.pop(action.request)
                self.waits[priority].append(self.now - asked_at)
                if rng.random() < self.faults.death:
                    self.after(rng.expovariate(1 / self.turn), self.die, action.hold.worker)
            case actions.Stop():
                self.after(rng.expovariate(20.0), self.die, action.worker)
            case actions.Reject():
                self.asked.pop(action.request, None)
                self.timeouts += isinstance(action.error, AcquireTimeout)

    def come_up(self, worker: str) -> None:
        if worker not in self.workers:
            return
        if self.rng.random() < self.faults.start:
            self.fail(worker, FailureKind.START)
        elif not self.workers[worker].stopping:
            self.ready(worker)

    def finish_reset(self, worker: str, resume_from: str | None) -> None:
        paper = self.workers.get(worker)
        if paper is None or paper.stopping:
            return
        if self.rng.random() < self.faults.reset:
            self.fail(worker, FailureKind.RESET if resume_from is None else FailureKind.RESUME)
        else:
            self.reset_done(worker)

    def finish_reconcile(self, worker: str) -> None:
        paper = self.workers.get(worker)
        if paper is not None and not paper.stopping:
            self.reconciled(worker)

    def die(self, worker: str) -> None:
        if worker in self.workers:
            self.exit(worker)

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _check_step(self, happened: list[Action]) -> None:
        """What can be checked at every event without looking at everything; and everything now and then."""
        self.steps += 1
        assert len(self.workers) <= self.settings.max
        figures = self.machine._state.figures()
        assert figures.total == len(self.workers)
        counters = self.machine._state.counters
        assert sum(counters.grants.values()) == counters.releases + counters.lost + len(self.machine._state.holds)
        due = self.machine.next_wakeup()
        assert due is None or due >= self.now, f"something was due at {due}"
        for action in happened:
            if isinstance(action, actions.Reset):
                self._check_order(action.worker)
        if self.steps % FULL_SCAN_EVERY == 0:
            self.machine.validate()
            assert set(self.machine._state.requests) == set(self.open_requests)

    def _check_order(self, name: str) -> None:
        """Nobody of the same profile and privilege was passed over by whoever this reset is for."""
        worker = self.machine._state.workers[name]
        preparation = worker.preparation
        if preparation is None:
            return
        best = min(preparation.waiters.values(), key=lambda waiter: waiter.rank)
        head = best.kind.lines[best.privileged].head()
        assert head is None or best.rank < head.rank, f"{best.request} was served before {head.request}"

    def check_books(self) -> None:
        """Every request has ended in exactly one way, by the machine's counters and by ours."""
        counters = self.machine.snapshot(self.now).counters
        assert not self.holds
        assert len(self.ended) == self.request_count
        assert sum(counters.grants.values()) == counters.releases + counters.lost
        assert sum(counters.grants.values()) == sum(map(len, self.waits.values()))
        assert counters.expired == self.timeouts
        assert counters.expired + counters.refused == len(self.errors)
        assert counters.spawned - sum(counters.exits.values()) == len(self.workers)
        self.check_spawn_rate()

    def check_spawn_rate(self) -> None:
        """No window has more starts than the bucket allows."""
        burst, rate = self.settings.spawn_burst, self.settings.spawn_rate
        for first, when in enumerate(self.spawn_times):
            last = first + burst
            if last < len(self.spawn_times):
                assert self.spawn_times[last] >= when + 1 / rate - 1e-6, f"too many starts after {when}"
