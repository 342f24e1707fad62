"""Background commands keep their session's worker, but never all of them: somebody can always be served."""

import pytest

from errors import AcquireTimeout, PoolSaturated, UsageError
from pool import stimuli
from pool.settings import PoolSettings
from pool.state import check_settings
from pool.stimuli import Spawn, Stop, StopReason
from profiles import CapabilityProfile
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def pin(world: World, *sessions: str) -> list[str]:
    """Let these sessions leave a command running, one after the other; their workers."""
    workers = []
    for session in sessions:
        request = world.held(session, A)
        workers.append(world.worker_of(request))
        world.run_in_background(workers[-1], 1)
        world.release(request)
        world.pass_time(1.0)
    return workers


@pytest.mark.parametrize("profile", [A, B])
def test_a_pool_of_two_with_two_endless_commands_serves_a_third_session(profile: CapabilityProfile) -> None:
    world = World(max=2)
    pin(world, "first", "second")
    request = world.acquire("third", profile)
    world.run_until_settled()
    assert request in world.holds
    assert ("worker_exited", "w1", "unpinned") in [
        (event, data.get("worker"), data.get("cause")) for event, data in world.events
    ]
    assert world.workers["w2"].background == 1, "the session used last keeps its command"


def test_one_fewer_than_all_are_left_alone_whoever_waits() -> None:
    world = World(max=2)
    pin(world, "first")
    turn = world.held("second", A)
    request = world.acquire("third", A)
    assert world.pass_time(20.0) == []
    world.release(turn)
    world.run_until_settled()
    assert world.worker_of(request) == "w2"
    assert not world.workers["w1"].stopping


def test_where_nobody_waits_all_may_be_kept() -> None:
    world = World(max=2)
    pin(world, "first", "second")
    assert world.pass_time(10_000.0) == []
    world.acquire("third", A, spawn=False)
    assert not any(worker.stopping for worker in world.workers.values()), "it takes only what is free"


def test_a_worker_that_becomes_one_too_many_while_somebody_waits_is_stopped_at_once() -> None:
    world = World(max=2)
    (first,) = pin(world, "first")
    turn = world.held("second", A)
    world.acquire("third", B)
    world.run_in_background(world.worker_of(turn), 1)
    assert world.release(turn) == [Stop(first, StopReason.UNPINNED)]


def test_fewer_may_be_kept_where_the_settings_say_so() -> None:
    world = World(max=4, max_pinned=1)
    first, second = pin(world, "first", "second")
    for session in ("third", "fourth"):
        world.held(session, A)
    assert not any(worker.stopping for worker in world.workers.values())
    request = world.acquire("fifth", A)
    assert [name for name, worker in world.workers.items() if worker.stopping] == [first]
    world.run_until_settled()
    assert request in world.holds
    blocked = world.acquire("sixth", A)
    assert world.pass_time(20.0) == []
    assert (blocked in world.open_requests, world.workers[second].stopping) == (True, False)


def test_the_session_used_longest_ago_loses_its_command() -> None:
    world = World(max=2)
    first, second = pin(world, "first", "second")
    world.release(world.held("first", A))
    world.acquire("third", A)
    assert [world.workers[name].stopping for name in (first, second)] == [False, True]


@pytest.mark.parametrize("limit", ["max_per_agent", "max_per_profile"])
def test_commands_do_not_use_up_a_limit_of_an_agent_or_a_profile_either(limit: str) -> None:
    world = World(max=8, **{limit: 2})
    workers = pin(world, "first", "second")
    request = world.acquire("third", A)
    assert [world.workers[name].stopping for name in workers] == [True, False]
    world.run_until_settled()
    assert request in world.holds


def test_a_session_does_not_wait_for_its_own_commands_when_it_needs_another_worker() -> None:
    world = World(max=2)
    (first,) = pin(world, "first")
    request = world.acquire("first", B)
    assert [name for name, worker in world.workers.items() if worker.stopping] == [first]
    assert world.exit(first) == [Spawn("w2", B)]
    world.run_until_settled()
    assert request in world.holds


def test_a_session_does_not_wait_for_its_own_commands_after_a_reload_that_changed_its_profile() -> None:
    world = World(max=2)
    (first,) = pin(world, "first")
    world.tell(stimuli.ProfilesChanged(frozenset({B.signature})))
    assert world.pass_time(10_000.0) == [], "as long as the session asks for nothing its command goes on"
    request = world.acquire("first", B)
    assert [worker.stopping for name, worker in world.workers.items() if name == first] == [True]
    world.run_until_settled()
    assert request in world.holds


@pytest.mark.parametrize("why", ["age", "recycle"])
def test_a_kept_worker_that_is_to_retire_serves_its_session_and_ends_with_the_command(why: str) -> None:
    world = World(max=2, max_age=100.0)
    (first,) = pin(world, "first")
    if why == "recycle":
        world.tell(stimuli.RecycleWorker(first))
    world.pass_time(1_000.0)
    request = world.held("first", A)
    assert world.worker_of(request) == first
    world.release(request)
    assert not world.workers[first].stopping
    world.run_in_background(first, 0)
    assert world.workers[first].stopping


def test_who_is_refused_hears_for_whom_workers_are_kept() -> None:
    world = World(max=2, waiting_capacity=1)
    pin(world, "first")
    world.held("second", A)
    late = world.acquire("third", A, timeout=5.0)
    refused = world.acquire("fourth", A)
    world.pass_time(5.0)
    for request, kind in ((late, AcquireTimeout), (refused, PoolSaturated)):
        error = world.errors[request]
        assert isinstance(error, kind)
        assert error.message.endswith("; background commands keep workers for first")
        assert error.details["pinned"] == ["first"]


def test_a_limit_that_would_leave_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="max_pinned = 2 lets background commands keep all of max = 2"):
        check_settings(PoolSettings(max=2, max_pinned=2))
    assert World(max=1).tell(stimuli.ClockTick()) == []
