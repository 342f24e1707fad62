"""Load and faults around the machine in virtual time: what ``World`` records on paper, this makes happen by chance."""

import contextlib
import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator

from errors import AcquireTimeout, ResumeFailed, UsageError
from pool import stimuli
from pool import stimuli as actions
from pool.machine import PoolMachine
from pool.stimuli import Action, FailureKind
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile
from tests.sim.faults import Fault
from tests.sim.loads import PRIORITIES, Ask, Event, Leave, Load, Scale, zipf
from tests.sim.promises import Promises

REST = 3600.0
"""Seconds after the last outcome after which only what is kept on purpose may be left."""
_TRAIL = 30
_EVENTS_KEPT = 1000


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


class Tally:
    """What one life of the machine has answered, counted from outside."""

    def __init__(self) -> None:
        self.grants: Counter[str] = Counter()
        self.expired = 0
        self.refused = 0


class Simulation(World):
    """Front ends that ask as a load says, workers that take their time, and faults.

    Args:
        seed: every choice follows from it.
        load: what is asked for; its settings are the pool's, beside ``settings``.
        scale: how much of it.
        faults: what goes wrong, each with choices of its own.
    """

    profiles_of_load = staticmethod(eight_profiles)
    starters = 1
    """Nodes that start workers at most."""

    def __init__(
        self, seed: int, load: Load, scale: Scale, faults: list[Fault] | None = None, **settings: object
    ) -> None:
        limits = {"max": scale.workers, "spawn_burst": 8, "spawn_rate": 4.0, **load.settings, **settings}
        super().__init__(seed=seed, now=0.0, **limits)
        self.seed = seed
        self.load = load
        self.scale = scale
        self.faults = faults or []
        self.rng = random.Random(seed)
        self.profiles = self.profiles_of_load()
        self.session_names = [f"s{number}" for number in range(scale.sessions)]
        weights = zipf(len(self.profiles))
        self.profile_of = self.rng.choices(self.profiles, cum_weights=weights, k=scale.sessions)
        self.until = 0.0
        self.agenda: list[tuple[float, int, int | None, Callable[..., object], tuple[object, ...]]] = []
        self.numbers = itertools.count()
        self.life = 0
        self.frozen: dict[str, float] = {}
        """Workers that stand still, and until when."""
        self.start_failures = 0.0
        """Chance that a start fails now; those of a reset that it does."""
        self.reset_failures = 0.0
        self.stop_seconds: Callable[[random.Random], float] = lambda rng: rng.expovariate(20.0)
        self.on_grant: list[Callable[[Simulation, str], None]] = []
        self.asks: dict[str, Ask] = {}
        """What every request without an outcome was asked with; those that hold a worker too."""
        self.waits: dict[int, list[float]] = {priority: [] for priority in PRIORITIES}
        self.waits_of: dict[str, list[float]] = {profile.signature: [] for profile in self.profiles}
        self.used = 0.0
        """Seconds of turns that were run."""
        self.tally = Tally()
        self.totals: Counter[str] = Counter()
        """Outcomes and processes of all lives."""
        self.trail: deque[tuple[float, stimuli.Stimulus, list[Action]]] = deque(maxlen=_TRAIL)
        self.unheard = 0
        self.promises = Promises(self)
        self._introduce()

    def _introduce(self) -> None:
        """Every session has a transcript from before."""
        for name in self.session_names:
            super().tell(stimuli.SessionKnown(name, f"{name}.jsonl"))

    # --- the course of events ---------------------------------------------------------------------------------------

    def after(self, delay: float, what: Callable[..., object], *arguments: object) -> None:
        """Let something happen that outlives the supervisor."""
        heapq.heappush(self.agenda, (self.now + delay, next(self.numbers), None, what, arguments))

    def in_this_life(self, delay: float, what: Callable[..., object], *arguments: object) -> None:
        """Let something happen to a process, unless the supervisor is killed before."""
        heapq.heappush(self.agenda, (self.now + delay, next(self.numbers), self.life, what, arguments))

    def run(self, hours: float) -> None:
        """Put the load on for so many virtual hours, let everything come to an end, and then to rest."""
        self.until = hours * 3600.0
        for fault in self.faults:
            fault.begin(self)
        self._continue(self.load.events(self.rng, self.scale))
        self._go_on(lambda: bool(self.agenda or self.open_requests))
        self.promises.check_books()
        end = self.now + REST
        self._go_on(lambda: self._next_at() <= end)
        self.now = end
        self.promises.check_rest()

    def _continue(self, events: Iterator[Event]) -> None:
        """Do what the load's next event says when its time has come; one at a time is in the agenda."""
        event = next(events)
        if event.at <= self.until:
            self.after(event.at - self.now, self._arrive, event, events)

    def _arrive(self, event: Event, events: Iterator[Event]) -> None:
        self._continue(events)
        if isinstance(event, Ask):
            self.ask(event)
        else:
            self._leave(event)

    def _go_on(self, wanted: Callable[[], bool]) -> None:
        while wanted():
            due = self.machine.next_wakeup()
            assert self.agenda or due is not None, f"stuck with {sorted(self.open_requests)}"
            if due is not None and (not self.agenda or due <= self.agenda[0][0]):
                self.now = max(self.now, due)
                self.tell(stimuli.ClockTick())
                continue
            when, _, life, what, arguments = heapq.heappop(self.agenda)
            if life is None or life == self.life:
                self.now = max(self.now, when)
                what(*arguments)

    def _next_at(self) -> float:
        due = self.machine.next_wakeup()
        return min(float("inf") if due is None else due, self.agenda[0][0] if self.agenda else float("inf"))

    # --- front ends -------------------------------------------------------------------------------------------------

    def ask(self, ask: Ask) -> None:
        session, profile = self.session_names[ask.session], self.profile_of[ask.session]
        if ask.unheard:
            self.unheard += 1
            session, profile = f"once{self.unheard}", make_profile(f"once{self.unheard}")
        elif ask.stray:
            profile = self.rng.choice(self.profiles)
        request = f"r{self.request_count + 1}"
        self.asks[request] = ask._replace(at=self.now)
        timeout = self.settings.waiting_timeout if ask.timeout is None else ask.timeout
        self.promises.asked(request, self.now + timeout)
        self.acquire(session, profile, priority=ask.priority, timeout=ask.timeout, bounded=ask.timeout is None)

    def _leave(self, leave: Leave) -> None:
        """Drop what the front end waits for; it asks for the same again, and what has a worker goes on without it."""
        for request in [each for each in self.open_requests if self.asks[each].front_end == leave.front_end]:
            ask = self.asks[request]
            self.change_mind(request)
            self.after(leave.away, self.ask, ask)

    def change_mind(self, request: str) -> None:
        if request in self.open_requests or request in self.holds:
            self.asks.pop(request)
            self.totals["cancelled"] += 1
            self.cancel(request)

    def end_turn(self, request: str, worker: str) -> None:
        if request not in self.holds and request not in self.void:
            return
        if self._stands_still(worker) and request in self.holds:
            self.in_this_life(self.frozen[worker] - self.now, self.end_turn, request, worker)
            return
        session = (self.holds.get(request) or self.void[request]).session
        delivery = self.asks.pop(request).delivery
        if delivery:
            self.set_busy(session)
            self.in_this_life(delivery, self.set_quiet, session)
        self.release(request)

    def _mend(self, session: str) -> None:
        """Somebody resets a session whose transcript could not be resumed."""
        with contextlib.suppress(UsageError):
            self.forget(session)

    # --- processes --------------------------------------------------------------------------------------------------

    def tell(self, stimulus: stimuli.Stimulus) -> list[Action]:
        return self.tell_at(stimulus, self.now)

    def tell_at(self, stimulus: stimuli.Stimulus, now: float) -> list[Action]:
        """Tell the machine at what it may take for another time, and check what must hold."""
        decided = self.machine.handle(stimulus, now)
        self.trail.append((self.now, stimulus, decided))
        for action in decided:
            self._perform(action)
        for action in decided:
            self._schedule(action)
        self.promises.check(decided)
        return [action for action in decided if not isinstance(action, actions.Notify)]

    def _note(self, event: str, data: dict[str, object]) -> None:
        super()._note(event, data)
        if len(self.events) > 2 * _EVENTS_KEPT:
            del self.events[:_EVENTS_KEPT]

    def _schedule(self, action: Action) -> None:
        rng = self.rng
        match action:
            case actions.Spawn():
                self.totals["spawned"] += 1
                self.in_this_life(0.1 + rng.expovariate(4.0), self.come_up, action.worker)
            case actions.Reset():
                delay = 0.002 + rng.expovariate(500.0)
                self.in_this_life(delay, self.finish_reset, action.worker, action.resume_from)
            case actions.Reconcile():
                self.in_this_life(0.001, self.finish_reconcile, action.worker)
            case actions.Grant():
                self._granted(action)
            case actions.Stop():
                self.in_this_life(0.0 if action.force else self.stop_seconds(rng), self.die, action.worker)
            case actions.Reject():
                self._rejected(action)

    def _granted(self, action: actions.Grant) -> None:
        ask = self.asks[action.request]
        self.tally.grants[action.level.label] += 1
        self.totals["granted"] += 1
        self.waits[ask.priority].append(self.now - ask.at)
        if not (ask.unheard or ask.stray):
            self.waits_of[self.profile_of[ask.session].signature].append(self.now - ask.at)
        self.used += ask.turn
        self.in_this_life(ask.turn, self.end_turn, action.request, action.hold.worker)
        for listener in self.on_grant:
            listener(self, action.request)

    def _rejected(self, action: actions.Reject) -> None:
        ask = self.asks.pop(action.request)
        if isinstance(action.error, AcquireTimeout):
            self.tally.expired += 1
            self.totals["expired"] += 1
        else:
            self.tally.refused += 1
            self.totals[f"refused: {action.error.code}"] += 1
        if isinstance(action.error, ResumeFailed):
            self.after(1.0, self._mend, self.session_names[ask.session])
        del self.errors[action.request]

    def _stands_still(self, worker: str) -> bool:
        if self.frozen.get(worker, 0.0) > self.now:
            return True
        self.frozen.pop(worker, None)
        return False

    def come_up(self, worker: str) -> None:
        paper = self.workers.get(worker)
        if paper is None or paper.stopping:
            return
        if self._stands_still(worker):
            self.in_this_life(self.frozen[worker] - self.now, self.come_up, worker)
        elif self.rng.random() < self.start_failures:
            self.fail(worker, FailureKind.START)
        else:
            self.ready(worker)

    def finish_reset(self, worker: str, resume_from: str | None) -> None:
        paper = self.workers.get(worker)
        if paper is None or paper.stopping or paper.resetting is None:
            return
        if self._stands_still(worker):
            self.in_this_life(self.frozen[worker] - self.now, self.finish_reset, worker, resume_from)
        elif self.rng.random() < self.reset_failures:
            self.fail(worker, FailureKind.RESET if resume_from is None else FailureKind.RESUME)
        else:
            self.reset_done(worker, None if paper.resetting[0].startswith("once") else "")

    def finish_reconcile(self, worker: str) -> None:
        paper = self.workers.get(worker)
        if paper is None or paper.stopping:
            return
        if self._stands_still(worker):
            self.in_this_life(self.frozen[worker] - self.now, self.finish_reconcile, worker)
        elif self.rng.random() < self.reset_failures:
            self.fail(worker, FailureKind.RECONCILE)
        else:
            self.reconciled(worker)

    def set_background(self, worker: str, running: int) -> None:
        paper = self.workers.get(worker)
        if paper is not None and paper.ready and not paper.stopping:
            paper.background = running
            self.tell(stimuli.BackgroundCount(worker, running))

    def give_up_on(self, worker: str) -> None:
        """The shell's patience is at its end with a worker that still stands still."""
        paper = self.workers.get(worker)
        if paper is None or paper.stopping or not paper.ready or not self._stands_still(worker):
            return
        if paper.resetting is None:
            self.fail(worker, FailureKind.UNRESPONSIVE)
        else:
            self.fail(worker, FailureKind.RESET if paper.resetting[1] is None else FailureKind.RESUME)

    def die(self, worker: str) -> None:
        if worker in self.workers:
            self.frozen.pop(worker, None)
            self.exit(worker)

    # --- the supervisor ---------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """The supervisor is killed, and turns and direct acquires with it; runs wait again in their old order."""
        self.life += 1
        waiting = {acquire.request: acquire for acquire in self.open_requests.values() if not acquire.bounded}
        gone = {*self.holds, *self.void, *self.open_requests} - waiting.keys()
        self.totals["interrupted"] += len(gone)
        self.ended |= gone
        for request in gone:
            del self.asks[request]
        for books in (self.workers, self.holds, self.void, self.busy, self.bound, self.frozen, self.open_requests):
            books.clear()
        self.tally = Tally()
        self.promises.new_life()
        self.machine = PoolMachine(self.settings, rng=random.Random(self.rng.random()), now=self.now)
        self._introduce()
        for acquire in waiting.values():
            self.open_requests[acquire.request] = acquire
            self.tell(acquire)

    def leap(self, seconds: float) -> None:
        """The clock stood still, and now it does not."""
        self.now += seconds
        self.tell(stimuli.ClockTick())
