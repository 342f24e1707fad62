"""The start of a worker whose profile has failed again and again is a trial: it costs no healthy worker its life."""

from errors import ProfileBroken
from pool import stimuli
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def test_a_trial_stops_no_healthy_worker_and_waits_for_no_room() -> None:
    world = World(max=2, breaker_failures=1)
    world.acquire("first", A)
    world.exit("w1")  # the breaker is open
    world.release(world.held("quiet", B))
    stopped = world.worker_of(world.held("busy", B))
    world.pass_time(30.0)
    error = world.errors[world.acquire("trial", A)]
    assert isinstance(error, ProfileBroken)
    assert "a trial needs room, and stops no other worker for it" in str(error)
    assert not any(paper.stopping for paper in world.workers.values())
    world.tell(stimuli.StopWorker(stopped))
    world.exit(stopped)
    again = world.acquire("trial", A)
    world.run_until_settled()
    assert again in world.holds
