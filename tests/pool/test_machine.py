"""The order of acquiring: who gets which worker, and what is done to get there."""

from errors import PoolSaturated
from pool import stimuli
from pool.snapshot import SessionSnapshot
from pool.stimuli import Action, Grant, Reconcile, Reset, Spawn, Stop, StopReason, WorkerHold
from profiles.matching import MatchLevel
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def kinds(happened: list[Action]) -> list[type]:
    return [type(action) for action in happened]


def states(world: World) -> dict[str, str]:
    return {worker.id: worker.state for worker in world.machine.snapshot(world.now).workers}


def session_of(world: World, key: str) -> SessionSnapshot:
    return next(session for session in world.machine.snapshot(world.now).sessions if session.key == key)


# --- steps 1 to 4 ----------------------------------------------------------------------------------------------------


def test_a_first_request_spawns_a_worker_resets_it_and_is_granted() -> None:
    world = World()
    happened = world.tell(stimuli.Acquire(request="r1", session="s", profile=A))
    assert happened == [Spawn("w1", A)]
    world.workers["w1"].ready = True
    assert world.tell(stimuli.WorkerReady("w1")) == [Reset("w1", "s", None, is_fresh=True)]
    assert states(world) == {"w1": "leased"}
    world.open_requests["r1"] = stimuli.Acquire(request="r1", session="s", profile=A)
    assert world.reset_done("w1") == [Grant("r1", WorkerHold("r1", "s", "w1", 1), MatchLevel.EXACT)]
    assert session_of(world, "s").transcript == "s.jsonl"


def test_it_is_known_whose_conversation_a_worker_has() -> None:
    world = World()
    world.acquire("s")
    assert world.machine.session_of("w1") is None
    world.workers["w1"].ready = True
    world.tell(stimuli.WorkerReady("w1"))
    assert world.machine.session_of("w1") == "s"
    assert world.machine.session_of("w2") is None


def test_the_sessions_own_worker_is_granted_at_once() -> None:
    world = World()
    world.release(world.held("s"))
    request = world.acquire("s")
    assert world.levels[request] is MatchLevel.BOUND
    assert len(world.workers) == 1


def test_two_requests_of_one_session_hold_its_worker_together() -> None:
    world = World()
    first, second = world.held("s"), world.acquire("s")
    assert world.worker_of(first) == world.worker_of(second)
    world.release(first)
    assert states(world) == {"w1": "leased"}
    world.release(second)
    assert states(world) == {"w1": "idle"}


def test_a_second_acquire_of_a_session_being_acquired_joins_the_first() -> None:
    world = World()
    first, second = world.acquire("s"), world.acquire("s")
    assert list(world.workers) == ["w1"]
    world.ready("w1")
    third = world.acquire("s")
    happened = world.reset_done("w1")
    assert kinds(happened) == [Grant, Grant, Grant]
    assert [world.worker_of(request) for request in (first, second, third)] == ["w1"] * 3
    world.machine.validate()


def test_a_joined_request_lives_on_when_the_first_is_cancelled() -> None:
    world = World()
    first, second = world.acquire("s"), world.acquire("s")
    world.cancel(first)
    world.ready("w1")
    world.reset_done("w1")
    assert list(world.holds) == [second]
    assert len(world.spawn_times) == 1


def test_a_free_exact_worker_is_reset_and_granted() -> None:
    world = World()
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    world.ready("w1")
    world.acquire("s", A)
    assert world.workers["w1"].resetting == ("s", None)
    assert kinds(world.reset_done("w1")) == [Grant]


def test_a_soft_difference_is_reconciled_before_the_grant_never_ignored() -> None:
    world = World(max=1)
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    world.ready("w1")
    large = make_profile("a", model="large")
    request = world.acquire("s", large)
    assert world.reset_done("w1") == [Reconcile("w1", large.soft)]
    assert kinds(world.reconciled("w1")) == [Grant]
    assert world.levels[request] is MatchLevel.HARD


def test_a_superset_of_resources_serves_too() -> None:
    world = World(max=1)
    world.tell(stimuli.SetPrewarm(((make_profile(skills=("x", "y")), 1),)))
    world.ready("w1")
    request = world.held("s", make_profile(skills=("x",)))
    assert world.levels[request] is MatchLevel.SOFT_SUPERSET


def test_the_bound_worker_is_reconciled_when_the_session_wants_another_model() -> None:
    world = World()
    world.release(world.held("s", A))
    large = make_profile("a", model="large")
    request = world.acquire("s", large)
    assert world.workers["w1"].reconciling == large.soft
    world.reconciled("w1")
    assert world.levels[request] is MatchLevel.BOUND


def test_a_running_turn_keeps_its_model_and_the_other_request_waits_for_the_boundary() -> None:
    world = World()
    first = world.held("s", A)
    second = world.acquire("s", make_profile("a", model="large"))
    third = world.acquire("s", A)
    assert third in world.holds
    world.release(first)
    assert world.workers["w1"].reconciling is None
    happened = world.release(third)
    assert kinds(happened) == [Reconcile]
    assert kinds(world.reconciled("w1")) == [Grant]
    assert second in world.holds


def test_a_bound_worker_that_does_not_fit_is_stopped_first_and_the_session_resumes_on_another() -> None:
    world = World()
    world.release(world.held("s", A))
    request = world.acquire("s", B)
    assert world.workers["w1"].stopping
    assert list(world.workers) == ["w1"]
    happened = world.exit("w1")
    assert happened == [Spawn("w2", B)]
    assert world.ready("w2") == [Reset("w2", "s", "s.jsonl", is_fresh=True)]
    world.reset_done("w2")
    assert world.worker_of(request) == "w2"


def test_a_bound_worker_that_does_not_fit_ends_its_turn_first() -> None:
    world = World()
    first = world.held("s", A)
    second = world.acquire("s", B)
    assert not world.workers["w1"].stopping
    world.set_busy("s")
    assert world.release(first) == []
    assert world.set_quiet("s") == [Stop("w1", StopReason.RETIRED)]
    world.run_until_settled()
    assert world.worker_of(second) == "w2"


def test_a_default_that_was_changed_cannot_be_restored_so_the_worker_is_replaced() -> None:
    world = World()
    default = make_profile("a", model=None)
    world.release(world.held("s", default))
    world.release(world.held("s", make_profile("a", model="large")))
    request = world.acquire("s", default)
    assert world.workers["w1"].stopping
    world.run_until_settled()
    assert world.worker_of(request) == "w2"


def test_a_spawn_is_demand_so_the_request_takes_whatever_fits_first() -> None:
    world = World()
    first = world.held("one")
    second = world.acquire("two")
    assert len(world.workers) == 2
    world.release(first)
    assert world.workers["w1"].resetting == ("two", None)
    world.reset_done("w1")
    assert world.worker_of(second) == "w1"


def test_no_more_workers_are_started_than_there_are_waiters_who_want_them() -> None:
    world = World(max=10)
    for number in range(3):
        world.acquire(f"s{number}", A)
    world.acquire("s0", A)
    assert len(world.workers) == 3


def test_a_starting_worker_whose_waiter_left_serves_the_next_one_that_fits() -> None:
    world = World(max=10)
    first = world.acquire("one", A)
    world.cancel(first)
    second = world.acquire("two", make_profile("a", model="large"))
    assert list(world.workers) == ["w1"]
    world.run_until_settled()
    assert world.levels[second] is MatchLevel.HARD


def test_the_waiter_whose_worker_was_taken_by_a_better_one_gets_another() -> None:
    world = World(max=2)
    ordinary = world.acquire("one", A)
    urgent = world.acquire("two", A, priority=10)
    world.cancel(world.acquire("three", A))
    world.fail("w2", stimuli.FailureKind.START)
    world.ready("w1")
    assert world.workers["w1"].resetting == ("two", None)
    world.exit("w2")
    world.pass_time(1.0)
    world.run_until_settled()
    assert {ordinary, urgent} == set(world.holds)


# --- steps 5 to 7 ----------------------------------------------------------------------------------------------------


def test_at_max_the_least_recently_used_quiet_worker_is_rebound_in_place() -> None:
    world = World(max=2)
    for session in ("cold", "warm"):
        world.release(world.held(session))
        world.pass_time(1.0)
    request = world.acquire("new")
    assert world.workers["w1"].resetting == ("new", None)
    assert session_of(world, "cold").state == "parking"
    world.reset_done("w1")
    assert session_of(world, "cold").state == "parked"
    assert world.worker_of(request) == "w1"
    assert len(world.spawn_times) == 2


def test_a_rebound_session_resumes_its_transcript_when_it_comes_back() -> None:
    world = World(max=1)
    world.release(world.held("one"))
    world.release(world.held("two"))
    world.acquire("one")
    assert world.workers["w1"].resetting == ("one", "one.jsonl")
    world.reset_done("w1")
    assert world.machine.snapshot(world.now).counters.resumed == 1


def test_a_parking_session_waits_until_its_old_worker_has_let_go_of_the_transcript() -> None:
    world = World(max=2)
    world.release(world.held("one"))
    world.held("two")
    world.acquire("three")
    assert world.workers["w1"].resetting == ("three", None)
    back = world.acquire("one")
    assert session_of(world, "one").state == "parking"
    assert world.workers["w2"].resetting is None
    world.reset_done("w1")
    assert back in world.open_requests
    assert session_of(world, "one").state == "parked"


def test_no_worker_in_the_middle_of_something_is_rebound_or_evicted() -> None:
    for profile in (A, B):
        world = World(max=2)
        first = world.held("s", A)
        world.held("in use", A)
        request = world.acquire("other", profile, bounded=False)
        world.set_busy("s")
        world.run_in_background("w1", 1)
        assert world.release(first) == []
        assert world.set_quiet("s") == []
        assert kinds(world.run_in_background("w1", 0)) == [Reset if profile is A else Stop]
        world.run_until_settled()
        assert request in world.holds


def test_where_none_matches_the_least_recently_used_worker_is_evicted_and_the_spawn_waits_for_its_exit() -> None:
    world = World(max=2)
    for session in ("cold", "warm"):
        world.release(world.held(session, A))
        world.pass_time(1.0)
    request = world.acquire("new", B)
    assert [worker.stopping for worker in world.workers.values()] == [True, False]
    assert len(world.workers) == 2
    assert world.exit("w1") == [Spawn("w3", B)]
    world.run_until_settled()
    assert world.worker_of(request) == "w3"
    assert world.machine.snapshot(world.now).counters.evicted == 1


def test_only_as_many_workers_are_evicted_as_there_are_waiters_for_their_slots() -> None:
    world = World(max=4)
    for number in range(4):
        world.release(world.held(f"a{number}", A))
    world.acquire("b0", B)
    world.acquire("b1", B)
    world.acquire("b1", B)
    assert sum(worker.stopping for worker in world.workers.values()) == 2


def test_a_slot_that_is_coming_free_anyway_is_used_before_another_worker_is_evicted() -> None:
    world = World(max=2)
    world.release(world.held("one", A))
    world.release(world.held("two", A))
    world.tell(stimuli.StopWorker("w1"))
    world.acquire("new", B)
    assert not world.workers["w2"].stopping


def test_a_freed_worker_goes_to_the_best_waiter_it_matches() -> None:
    world = World(max=2)
    a, b = world.held("a", A), world.held("b", B)
    for_b = world.acquire("b2", B, priority=9)
    for_a = world.acquire("a2", A, priority=9)
    late_a = world.acquire("a3", A, priority=9)
    world.release(a)
    world.run_until_settled()
    assert world.worker_of(for_a) == "w1"
    world.release(b)
    world.run_until_settled()
    assert world.worker_of(for_b) == "w2"
    assert late_a in world.open_requests


def test_a_freed_worker_that_matches_nobody_is_replaced_for_the_best_waiter() -> None:
    world = World(max=1)
    first = world.held("a", A)
    low = world.acquire("b", B, priority=5)
    high = world.acquire("c", make_profile("c"), priority=6)
    assert world.release(first) == [Stop("w1", StopReason.EVICTED)]
    assert kinds(world.exit("w1")) == [Spawn]
    world.run_until_settled()
    assert high in world.holds
    assert low in world.open_requests


def test_a_busy_profile_does_not_starve_the_others_beyond_one_age_step() -> None:
    world = World(max=1, waiting_timeout=1000.0)
    current = world.held("a", A)
    lonely = world.acquire("b", B, bounded=False)
    for turn in range(10):
        world.pass_time(1.0)
        following = world.acquire(f"a{turn}", A, bounded=False)
        world.release(current)
        world.run_until_settled()
        if lonely in world.holds:
            break
        current = following if following in world.holds else next(iter(world.holds))
    assert lonely in world.holds
    assert world.now - 1000.0 <= 3.0 + 2.0


def test_priorities_go_first_and_waiting_makes_up_for_them() -> None:
    world = World(max=1, waiting_timeout=1000.0)
    current = world.held("s")
    low = world.acquire("low", priority=3)
    world.pass_time(5.9)
    high = world.acquire("high", priority=5)
    world.pass_time(0.2)
    later = world.acquire("later", priority=5)
    for expected in (high, low, later):
        world.release(current)
        world.run_until_settled()
        assert list(world.holds) == [expected]
        current = expected


# --- without spawning and waiting ------------------------------------------------------------------------------------


def test_an_acquire_that_may_not_spawn_takes_what_is_there_or_nothing() -> None:
    world = World(max=2)
    nothing = world.acquire("s", spawn=False)
    assert isinstance(world.errors[nothing], PoolSaturated)
    assert not world.workers
    world.release(world.held("one"))
    bound = world.acquire("one", spawn=False)
    assert bound in world.holds
    world.release(bound)
    other = world.acquire("two", spawn=False)
    world.run_until_settled()
    assert world.worker_of(other) == "w1"
    refused = world.acquire("two", B, spawn=False)
    assert isinstance(world.errors[refused], PoolSaturated)
    world.release(other)
    assert not world.workers["w1"].stopping


def test_an_acquire_that_may_not_wait_never_overtakes_those_who_do() -> None:
    world = World(max=2)
    world.release(world.held("quiet"))
    waiting = world.acquire("first")
    assert len(world.workers) == 2
    hasty = world.acquire("hasty", spawn=False)
    assert isinstance(world.errors[hasty], PoolSaturated)
    world.run_until_settled()
    assert waiting in world.holds
