"""Requests that take only room: a worker is started for them where there is some, and nothing else happens."""

from errors import PoolSaturated
from pool import stimuli
from tests.pool.world import World, make_profile


def test_an_acquire_that_takes_only_room_has_a_worker_started_and_waits_for_nothing_else() -> None:
    world = World(max=2)
    first = world.acquire("s1", timeout=60)
    world.run_until_settled()
    modest = world.acquire("s2", make_profile("b"), spawn="room", timeout=60)
    assert modest in world.open_requests, "its worker is starting"
    world.run_until_settled()
    assert {first, modest} <= set(world.holds)
    refused = world.acquire("s3", make_profile("c"), spawn="room", timeout=60)
    assert isinstance(world.errors[refused], PoolSaturated)


def test_an_acquire_that_takes_only_room_stops_no_worker_that_is_at_rest() -> None:
    world = World(max=1)
    world.release(world.held("s1"))
    assert not world.machine.has_room("s2", make_profile("b"), world.now)
    refused = world.acquire("s2", make_profile("b"), spawn="room", timeout=60)
    assert isinstance(world.errors[refused], PoolSaturated)
    assert world.bound == {"s1": "w1"}


def test_an_acquire_that_takes_only_room_gives_way_when_another_takes_the_worker_that_was_started_for_it() -> None:
    world = World(max=1)
    modest = world.acquire("s1", spawn="room", priority=3, timeout=60)
    other = world.acquire("s2", priority=5, timeout=60)
    world.run_until_settled()
    assert other in world.holds
    assert isinstance(world.errors[modest], PoolSaturated)
    assert len(world.spawn_times) == 1


def test_an_acquire_that_takes_only_room_hears_that_its_worker_did_not_start() -> None:
    world = World(max=2)
    modest = world.acquire("s1", spawn="room", timeout=60)
    world.fail("w1", stimuli.FailureKind.START)
    assert "its worker did not start" in str(world.errors[modest])


def test_no_room_is_foretold_on_a_worker_that_is_being_brought_to_another_model() -> None:
    world = World(max=1)
    world.acquire("s", make_profile("a", model="small"))
    world.ready("w1")
    other = make_profile("a", model="large")
    assert not world.machine.has_worker("s", other)
    assert world.acquire("s", other, spawn=False) in world.errors
