"""A worker that a front end has changed at run time: its session keeps it, and nobody else gets it."""

from pool.stimuli import WorkerModified
from tests.pool.world import World, make_profile

PROFILE = make_profile("a")


def test_its_own_session_goes_on_with_it() -> None:
    world = World(max=1)
    world.release(world.held("s", PROFILE))
    world.tell(WorkerModified("w1"))
    request = world.held("s", PROFILE)
    assert world.worker_of(request) == "w1"
    world.machine.validate()


def test_another_session_gets_a_new_one_in_its_place() -> None:
    world = World(max=1)
    request = world.held("s", PROFILE)
    world.tell(WorkerModified("w1"))
    world.release(request)
    world.acquire("t", PROFILE)
    world.run_until_settled()
    assert list(world.workers) == ["w2"]
    world.machine.validate()


def test_it_counts_for_nobody_when_its_session_was_parted_from_it() -> None:
    world = World(max=2, session_idle_timeout=10)
    world.release(world.held("s", PROFILE))
    world.tell(WorkerModified("w1"))
    world.pass_time(11)
    request = world.acquire("s", PROFILE)
    world.run_until_settled()
    assert world.worker_of(request) == "w2"
    world.machine.validate()


def test_late_news_of_a_worker_that_is_gone_is_passed_over() -> None:
    world = World(max=1)
    request = world.held("s", PROFILE)
    world.exit("w1")
    world.tell(WorkerModified("w1"))
    world.release(request)
