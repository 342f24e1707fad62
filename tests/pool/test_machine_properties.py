"""Any history at all: Hypothesis drives; the world's books and the machine's own audit object after each step."""

from random import Random
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from errors import UsageError
from pool import stimuli
from pool.settings import PoolSettings
from pool.stimuli import FailureKind
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile

PROFILES = [
    make_profile("a"),
    make_profile("a", model="large"),
    make_profile("a", model=None),
    make_profile("a", skills=("x",)),
    make_profile("a", skills=("x", "y")),
    make_profile("b"),
    make_profile("c", agent="helper"),
    make_profile("d", agent="pin"),
    make_profile("e", agent="x@gpu"),
    make_profile("f", agent="y@gpu"),
]
SESSIONS = [f"s{number}" for number in range(6)]

LIMITS = st.fixed_dictionaries(
    {
        "max": st.integers(1, 4),
        "min": st.integers(0, 1),
        "max_per_profile": st.sampled_from((0, 0, 1, 2)),
        "max_per_agent": st.sampled_from((0, 0, 1, 3)),
        "max_pinned": st.sampled_from((0, 0, 1)),
        "reserve": st.sampled_from((0, 0, 1)),
        "waiting_capacity": st.sampled_from((1, 4, 50)),
        "spawn_burst": st.integers(1, 5),
        "spawn_rate": st.sampled_from((0.5, 4.0)),
        "idle_timeout": st.sampled_from((1.0, 300.0)),
        "session_idle_timeout": st.sampled_from((0.0, 2.0, 1800.0)),
        "max_turns": st.sampled_from((0, 0, 3)),
        "max_age": st.sampled_from((0.0, 20.0)),
        "breaker_failures": st.integers(1, 3),
        "breaker_half_open": st.just(5.0),
    }
).map(lambda limits: limits | {name: min(limits[name], limits["max"] - 1) for name in ("reserve", "max_pinned")})

OPTIONS = st.fixed_dictionaries(
    {
        "timeout": st.sampled_from((None, 1.0, 60.0)),
        "spawn": st.sampled_from((True, True, True, False, "room")),
        "nested": st.sampled_from((False, False, False, True)),
        "bounded": st.booleans(),
    }
)
CHOICE = st.randoms(use_true_random=False)
_REFUSED_OR_DEAD = (FailureKind.DISK_FULL, FailureKind.UNFIT, FailureKind.CRASHED, FailureKind.PROTOCOL)


class MachineHistory(RuleBasedStateMachine):
    """Rules are what can happen to a pool; the invariants are what it promises (see the battery's I1 ... I10)."""

    world: World

    @initialize(limits=LIMITS, seed=st.integers(0, 2**16))
    def begin(self, limits: dict[str, Any], seed: int) -> None:
        self.world = World(seed=seed, **limits)

    # --- callers ----------------------------------------------------------------------------------------------------

    @rule(
        session=st.sampled_from(SESSIONS),
        profile=st.sampled_from(PROFILES),
        priority=st.sampled_from((3, 5, 10)),
        options=OPTIONS,
    )
    def acquire(self, session: str, profile: CapabilityProfile, priority: int, options: dict[str, Any]) -> None:
        machine, world = self.world.machine, self.world
        has_worker, has_room = machine.has_worker(session, profile), machine.has_room(session, profile, world.now)
        evicted = machine.snapshot(world.now).counters.evicted
        request = world.acquire(session, profile, priority=priority, **options)
        if not (options["nested"] or priority >= 10):
            if not options["spawn"]:
                assert has_worker == (request not in world.errors), "what was foretold"
            elif options["spawn"] == "room":
                assert has_room == (request not in world.errors), "what was foretold"
        if options["spawn"] == "room":
            assert machine.snapshot(world.now).counters.evicted == evicted, "no worker stops for it"
        preparing = any(paper.resetting or paper.reconciling for paper in self.world.workers.values())
        if not options["spawn"]:
            assert request not in self.world.open_requests or preparing, "it may not wait"

    @precondition(lambda self: self.world.holds or self.world.void)
    @rule(choice=CHOICE, turns=st.integers(0, 3))
    def release(self, choice: Random, turns: int) -> None:
        self.world.release(choice.choice(sorted([*self.world.holds, *self.world.void])), turns)

    @precondition(lambda self: self.world.open_requests or self.world.holds)
    @rule(choice=CHOICE)
    def cancel(self, choice: Random) -> None:
        self.world.cancel(choice.choice(sorted([*self.world.open_requests, *self.world.holds])))

    @rule(session=st.sampled_from(SESSIONS), busy=st.booleans())
    def busy(self, session: str, busy: bool) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        if busy:
            self.world.set_busy(session)
        else:
            self.world.set_quiet(session)

    @rule(session=st.sampled_from(SESSIONS))
    def forget(self, session: str) -> None:
        held = any(hold.session == session for hold in self.world.holds.values())
        try:
            self.world.forget(session)
        except UsageError:
            assert held or any(
                session in (paper.resetting or ()) or paper.reconciling for paper in self.world.workers.values()
            )
        else:
            assert not held

    # --- processes --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.workers)
    @rule(choice=CHOICE)
    def proceed(self, choice: Random) -> None:
        """Some process gets on with what it was told."""
        name = choice.choice(sorted(self.world.workers))
        paper = self.world.workers[name]
        if paper.stopping:
            self.world.exit(name)
        elif not paper.ready:
            self.world.ready(name)
        elif paper.resetting:
            self.world.reset_done(name, transcript=choice.choice((None, "")))
        elif paper.reconciling:
            self.world.reconciled(name)

    @precondition(lambda self: self.world.workers)
    @rule(choice=CHOICE)
    def fail(self, choice: Random) -> None:
        """Some process fails at what it was told, or falls ill."""
        name = choice.choice(sorted(self.world.workers))
        paper = self.world.workers[name]
        if paper.stopping:
            return
        if not paper.ready:
            kind = FailureKind.START
        elif paper.resetting:
            refused = FailureKind.RESUME if paper.resetting[1] is not None else FailureKind.RESET
            kind = choice.choice((refused, *_REFUSED_OR_DEAD))
        elif paper.reconciling:
            kind = FailureKind.RECONCILE
        else:
            kind = choice.choice((FailureKind.UNRESPONSIVE, FailureKind.STALLED, FailureKind.PROTOCOL))
        self.world.fail(name, kind)

    @precondition(lambda self: self.world.workers)
    @rule(choice=CHOICE)
    def die(self, choice: Random) -> None:
        self.world.exit(choice.choice(sorted(self.world.workers)))

    @precondition(lambda self: self.world.workers)
    @rule(choice=CHOICE, running=st.integers(0, 1))
    def background(self, choice: Random, running: int) -> None:
        name = choice.choice(sorted(self.world.workers))
        if self.world.workers[name].ready:
            self.world.run_in_background(name, running)

    # --- operators and time -----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.01, 0.3, 1.0, 5.0, 31.0, 400.0)))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(profile=st.sampled_from(PROFILES), count=st.integers(0, 2))
    def prewarm(self, profile: CapabilityProfile, count: int) -> None:
        self.world.tell(stimuli.SetPrewarm(((profile, count),)))

    @rule(current=st.sets(st.sampled_from([profile.signature for profile in PROFILES])))
    def change_profiles(self, current: set[str]) -> None:
        self.world.tell(stimuli.ProfilesChanged(frozenset(current)))
        for name, paper in self.world.workers.items():
            idle = paper.at_rest and self.world.machine._state.workers[name].quiescent
            assert not idle or paper.profile.signature in current, "an idle worker is out of date"

    @precondition(lambda self: self.world.workers)
    @rule(choice=CHOICE, recycle=st.booleans())
    def operate(self, choice: Random, recycle: bool) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        name = choice.choice(sorted(self.world.workers))
        self.world.tell(stimuli.RecycleWorker(name) if recycle else stimuli.StopWorker(name))

    @rule(agent=st.sampled_from(("main", "helper")), forgets=st.booleans())
    def learn(self, agent: str, *, forgets: bool) -> None:
        self.world.tell(stimuli.AgentLearned(agent, forgets=forgets))

    @rule(here=st.integers(0, 4), gpu=st.integers(0, 3))
    def change_capacity(self, here: int, gpu: int) -> None:
        """Also to less than there is: what is too many ends in its own time."""
        self.world.set_capacity({"": here, "gpu": gpu})

    @rule(pause=st.booleans())
    def pause(self, pause: bool) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        self.world.tell(stimuli.Pause() if pause else stimuli.Resume())

    @rule(limits=LIMITS)
    def reconfigure(self, limits: dict[str, Any]) -> None:
        self.world.limit = max(limits["max"], self.world.limit)
        self.world.tell(stimuli.SettingsChanged(PoolSettings(**limits)))
        self.world.settings = PoolSettings(**limits)
        self.world.limit = max(limits["max"], len(self.world.workers))

    # --- promises ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_machine_agrees_with_itself(self) -> None:
        """I5, I6 and I8 from inside: nobody beside a match, nobody past a deadline, nobody moved in mid-turn."""
        self.world.machine.validate()

    @invariant()
    def every_request_has_at_most_one_outcome_and_none_is_lost(self) -> None:
        """I1: the world objects to a second outcome; those without one are exactly the waiters."""
        assert set(self.world.open_requests) == set(self.world.machine._state.requests)

    @invariant()
    def processes_never_exceed_the_limit_and_the_status_says_how_many(self) -> None:
        """I3 and I10."""
        snapshot = self.world.machine.snapshot(self.world.now)
        assert snapshot.counts.total == len(self.world.workers)
        assert {worker.id for worker in snapshot.workers} == set(self.world.workers)
        self.world.limit = max(self.world.settings.max, min(self.world.limit, len(self.world.workers)))
        assert len(self.world.workers) <= self.world.limit

    @invariant()
    def grants_are_releases_and_active_holds(self) -> None:
        """I10."""
        counters = self.world.machine.snapshot(self.world.now).counters
        assert sum(counters.grants.values()) == counters.releases + counters.lost + counters.active
        assert counters.active == len(self.world.holds)

    @invariant()
    def the_next_wakeup_is_never_in_the_past_after_a_tick(self) -> None:
        """I6: the shell need not poll."""
        self.world.pass_time(0.0)
        due = self.world.machine.next_wakeup()
        assert due is None or due > self.world.now

    def teardown(self) -> None:
        """When faults cease, everybody is served or told, though commands go on in the background, and it can close."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.tell(stimuli.Resume())
        for _ in range(60):
            for session in SESSIONS:
                world.set_quiet(session)
            world.run_until_settled()
            for request in list(world.holds):
                world.release(request)
            world.pass_time(1.0)
        world.run_until_settled()
        assert not world.open_requests, "somebody was forgotten"
        world.tell(stimuli.Close())
        world.run_until_settled()
        assert not world.workers
        world.machine.validate()


MachineHistory.TestCase.settings = hypothesis_settings(max_examples=50, stateful_step_count=60, deadline=None)
TestAnyHistory = MachineHistory.TestCase
