"""Limits: processes, profiles, agents, the bucket, the reserve, nested runs; new limits."""

from typing import Any

import msgspec
import pytest

from errors import NestedSaturated, UsageError
from pool import stimuli
from pool.machine import PoolMachine
from pool.settings import PoolSettings
from pool.stimuli import Action, Spawn, Stop, StopReason
from tests.pool.world import World, make_profile
from wire.units import Seconds

A = make_profile("a")
B = make_profile("b")
HELPER = make_profile("h", agent="helper")


def reconfigure(world: World, **changes: Any) -> list[Action]:
    settings = msgspec.structs.replace(world.settings, **changes)
    world.limit = max(settings.max, len(world.workers), world.limit)
    happened = world.tell(stimuli.SettingsChanged(settings))
    world.settings, world.limit = settings, max(settings.max, len(world.workers))
    return happened


def spawned(world: World) -> int:
    return len(world.spawn_times)


# --- processes -------------------------------------------------------------------------------------------------------


def test_starting_and_stopping_processes_count_against_max_until_they_are_reaped() -> None:
    world = World(max=2)
    world.acquire("one")
    world.acquire("two")
    world.acquire("three")
    assert len(world.workers) == 2
    world.tell(stimuli.StopWorker("w1"))
    assert spawned(world) == 2
    assert [type(action) for action in world.exit("w1")] == [Spawn]


def test_max_per_profile_holds_back_one_profile_only() -> None:
    world = World(max=5, max_per_profile=2)
    for number in range(4):
        world.acquire(f"a{number}", A)
    assert spawned(world) == 2
    assert world.held("b", B)
    world.run_until_settled()
    first, *_ = world.holds
    world.tell(stimuli.StopWorker(world.worker_of(first)))
    world.run_until_settled()
    assert spawned(world) == 4


def test_max_per_agent_evicts_within_the_agent() -> None:
    world = World(max=5, max_per_agent=2)
    helper = world.held("h", HELPER)
    world.release(helper)
    cold, warm = world.held("one", A), world.held("two", A)
    waiting = world.acquire("three", B)
    assert spawned(world) == 3
    world.release(cold)
    assert world.workers[world.machine.snapshot(0).workers[1].id].stopping
    world.run_until_settled()
    assert waiting in world.holds
    assert warm in world.holds
    assert not any(paper.stopping for paper in world.workers.values())
    assert sum(paper.profile.agent == "main" for paper in world.workers.values()) == 2


def test_starts_are_limited_by_the_bucket_and_go_on_when_it_fills() -> None:
    world = World(max=20, spawn_burst=3, spawn_rate=2.0)
    for number in range(6):
        world.acquire(f"s{number}")
    assert spawned(world) == 3
    assert world.machine.next_wakeup() == pytest.approx(world.now + 0.5)
    for expected in (4, 5, 6, 6):
        world.pass_time(0.5)
        assert spawned(world) == expected


def test_while_the_bucket_is_empty_a_quiet_worker_is_rebound_instead() -> None:
    world = World(max=5, spawn_burst=1, spawn_rate=0.1)
    world.release(world.held("one"))
    request = world.acquire("two")
    world.run_until_settled()
    assert world.worker_of(request) == "w1"
    assert spawned(world) == 1


def test_no_worker_is_evicted_for_a_start_that_is_not_allowed_yet() -> None:
    world = World(max=2, spawn_burst=2, spawn_rate=0.1)
    for session in ("a", "b"):
        world.release(world.held(session, A))
    waiting = world.acquire("c", B)
    assert not any(worker.stopping for worker in world.workers.values())
    assert world.pass_time(9.9) == []
    assert world.pass_time(0.2) == [Stop("w1", StopReason.EVICTED)]
    world.run_until_settled()
    assert waiting in world.holds


# --- the reserve -----------------------------------------------------------------------------------------------------


def test_ordinary_requests_never_hold_more_than_max_less_the_reserve() -> None:
    world = World(max=3, reserve=1)
    world.held("one")
    world.held("two")
    third = world.acquire("three", priority=9)
    world.run_until_settled()
    assert third in world.open_requests
    assert spawned(world) == 2
    assert world.held("urgent", priority=10)
    assert third in world.open_requests


def test_an_idle_worker_of_the_reserve_is_not_given_to_an_ordinary_request() -> None:
    world = World(max=2, reserve=1)
    world.tell(stimuli.SetPrewarm(((A, 2),)))
    world.run_until_settled()
    first = world.held("one")
    second = world.acquire("two")
    assert second in world.open_requests
    world.machine.validate()
    world.release(first)
    world.run_until_settled()
    assert second in world.holds


def test_a_quiet_session_of_its_own_waits_for_the_reserve_too_and_in_order() -> None:
    world = World(max=2, reserve=1)
    world.release(world.held("bound", priority=10))
    first = world.held("one")
    other = world.acquire("other")
    own = world.acquire("bound")
    assert {other, own} == set(world.open_requests)
    world.release(first)
    world.run_until_settled()
    assert other in world.holds
    world.release(other)
    world.run_until_settled()
    assert own in world.holds
    world.machine.validate()


def test_a_second_request_of_a_held_session_takes_no_further_worker_from_the_reserve() -> None:
    world = World(max=2, reserve=1)
    world.held("one")
    assert world.acquire("one") in world.holds


def test_who_lost_a_start_to_a_privileged_request_gets_another_when_the_reserve_allows() -> None:
    world = World(max=4, reserve=2)
    world.release(world.held("quiet"))
    world.held("one")
    world.acquire("two")
    in_the_way = world.acquire("quiet")
    world.acquire("vip", priority=10)
    assert len(world.workers) == 3
    world.set_busy("quiet")
    world.release(in_the_way)
    assert len(world.workers) == 4


def test_who_lost_a_start_to_another_profile_gets_another_when_the_reserve_allows() -> None:
    world = World(max=6, reserve=4)
    world.release(world.held("quiet"))
    world.held("one")
    world.acquire("two", A)
    world.acquire("vip", A, priority=10)
    in_the_way = world.acquire("quiet")
    world.acquire("large", make_profile("a", model="large"), priority=10)
    assert len(world.workers) == 4
    world.set_busy("quiet")
    world.release(in_the_way)
    assert len(world.workers) == 5


def test_a_worker_that_only_the_reserve_kept_from_a_waiter_is_given_to_it_when_the_reserve_allows() -> None:
    world = World(max=4, reserve=2, spawn_burst=3, spawn_rate=0.001)
    world.held("vip", priority=10)
    other_vip = world.held("other vip", priority=10)
    one = world.held("one")
    waiting = world.acquire("two")
    world.acquire("vip")
    world.release(other_vip)
    assert waiting in world.open_requests
    world.set_busy("one")
    world.release(one)
    world.run_until_settled()
    assert world.worker_of(waiting) == "w2"


def test_a_nested_run_may_use_the_reserve() -> None:
    world = World(max=2, reserve=1)
    world.held("parent")
    assert world.held("child", nested=True, priority=3)


def test_a_nested_run_fails_at_once_where_it_would_wait_for_its_ancestor() -> None:
    world = World(max=1)
    world.held("parent")
    child = world.acquire("child", nested=True)
    assert isinstance(world.errors[child], NestedSaturated)
    same = world.acquire("parent", B, nested=True)
    assert isinstance(world.errors[same], NestedSaturated)


def test_a_nested_run_waits_for_what_is_certainly_on_its_way() -> None:
    world = World(max=2)
    world.held("parent")
    child = world.acquire("child", nested=True)
    assert child in world.open_requests
    world.run_until_settled()
    assert child in world.holds
    world = World(max=2)
    world.release(world.held("quiet", A))
    world.held("parent", A)
    evicting = world.acquire("child", B, nested=True)
    assert evicting in world.open_requests
    world.run_until_settled()
    assert evicting in world.holds


def test_a_nested_run_goes_before_everybody_else() -> None:
    world = World(max=2)
    world.held("parent")
    before = world.acquire("before", priority=50)
    child = world.acquire("child", nested=True, priority=0)
    second_child = world.acquire("second child", nested=True)
    assert isinstance(world.errors[second_child], NestedSaturated)
    world.ready("w2")
    assert world.workers["w2"].resetting == ("child", None)
    world.reset_done("w2")
    world.release(child)
    world.run_until_settled()
    assert before in world.holds


def test_a_nested_run_is_refused_when_what_was_on_its_way_is_lost() -> None:
    world = World(max=2, breaker_failures=1)
    world.held("parent", A)
    child = world.acquire("child", B, nested=True)
    world.fail("w2", stimuli.FailureKind.START)
    assert child in world.errors


# --- new limits ------------------------------------------------------------------------------------------------------


def test_a_lower_max_stops_available_workers_now_and_held_ones_at_their_turn_boundary() -> None:
    world = World(max=4)
    one, two = world.held("one"), world.held("two")
    world.release(world.held("cold"))
    world.release(world.held("warm"))
    happened = reconfigure(world, max=1)
    assert happened == [Stop("w3", StopReason.RETIRED), Stop("w4", StopReason.RETIRED)]
    assert world.release(one) == [Stop("w1", StopReason.RETIRED)]
    assert world.release(two) == []
    world.run_until_settled()
    assert list(world.workers) == ["w2"]


def test_a_lower_max_stops_starting_workers_and_their_waiters_wait_on() -> None:
    world = World(max=3)
    held = world.held("one")
    waiting = world.acquire("two")
    assert reconfigure(world, max=1) == [Stop("w2", StopReason.RETIRED)]
    world.run_until_settled()
    world.release(held)
    world.run_until_settled()
    assert waiting in world.holds


def test_a_higher_max_is_used_at_once() -> None:
    world = World(max=1)
    world.held("one")
    waiting = world.acquire("two")
    assert [type(action) for action in reconfigure(world, max=2)] == [Spawn]
    world.run_until_settled()
    assert waiting in world.holds


def test_a_smaller_reserve_lets_ordinary_waiters_go_on() -> None:
    world = World(max=2, reserve=1)
    world.held("one")
    waiting = world.acquire("two")
    reconfigure(world, reserve=0)
    world.run_until_settled()
    assert waiting in world.holds


@pytest.mark.parametrize(
    "changes",
    [
        {"max": 0},
        {"min": 5, "max": 4},
        {"reserve": 4, "max": 4},
        {"spawn_rate": 0.0},
        {"spawn_burst": 0},
        {"breaker_failures": 0},
        {"ping_interval_idle": Seconds(0)},
        {"turn_stall": Seconds(0)},
        {"reset_timeout": Seconds(-1)},
    ],
)
def test_limits_that_contradict_each_other_are_refused_and_change_nothing(changes: dict[str, Any]) -> None:
    world = World()
    with pytest.raises(UsageError, match=next(iter(changes))):
        reconfigure(world, **changes)
    assert world.held("s")
    with pytest.raises(UsageError):
        PoolMachine(PoolSettings(**changes), rng=world.machine._state.rng, now=0.0)
