"""Hours of virtual time in seconds: load, faults, and every promise checked at every event. A failing seed is named."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from errors import AcquireTimeout
from tests.pool.world import World, make_profile
from tests.sim.simulation import Faults, Simulation

NO_FAULTS = Faults(start=0.0, reset=0.0, death=0.0, cancel=0.0)


@contextmanager
def named(seed: int) -> Iterator[int]:
    try:
        yield seed
    except BaseException as exc:
        exc.add_note(f"simulation seed: {seed}")
        raise


def mean(waits: list[float]) -> float:
    return sum(waits) / len(waits)


def test_ten_thousand_sessions_share_sixty_four_workers_without_anybody_timing_out() -> None:
    with named(1) as seed:
        sim = Simulation(
            seed, sessions=10_000, utilisation=0.8, faults=NO_FAULTS, max=64, spawn_burst=8, spawn_rate=4.0
        )
        sim.run(30_000)
        counters = sim.machine.snapshot(sim.now).counters
        assert sim.timeouts == 0
        assert counters.spawned < 1000, "a rebind is a reset, not a new process"
        assert mean(sim.waits[10]) <= mean(sim.waits[3])


def test_the_same_with_deaths_failed_starts_failed_resets_and_cancelled_requests() -> None:
    with named(2) as seed:
        sim = Simulation(
            seed,
            sessions=10_000,
            utilisation=0.8,
            faults=Faults(),
            strays=0.02,
            max=64,
            spawn_burst=8,
            spawn_rate=4.0,
            waiting_capacity=200,
            reserve=4,
        )
        sim.run(30_000)
        counters = sim.machine.snapshot(sim.now).counters
        assert counters.lost > 0
        assert counters.exits["resume"] > 0
        assert counters.expired < 0.02 * 30_000


def test_an_overloaded_pool_refuses_some_and_serves_as_many_as_it_can() -> None:
    with named(3) as seed:
        sim = Simulation(
            seed, sessions=2_000, utilisation=4.0, faults=Faults(), max=16, waiting_capacity=50, spawn_rate=4.0
        )
        sim.run(8_000)
        counters = sim.machine.snapshot(sim.now).counters
        assert counters.refused + counters.expired > 0.1 * 8_000
        assert sum(counters.grants.values()) > 0.5 * 8_000
        assert len(sim.waits[10]) > 1.2 * len(sim.waits[3]), "the more important are served more often"


def test_thousands_who_come_at_once_are_all_served_or_told() -> None:
    with named(4) as seed:
        sim = Simulation(
            seed,
            sessions=3_200,
            utilisation=1.0,
            faults=NO_FAULTS,
            max=64,
            waiting_timeout=3600.0,
            waiting_capacity=4_000,
        )
        sim.crowd(3_200)
        sim.finish()
        assert sum(map(len, sim.waits.values())) == 3_200


@pytest.mark.parametrize("seed", range(10, 16))
def test_small_pools_with_every_limit_in_force_and_many_faults_keep_their_promises(seed: int) -> None:
    with named(seed):
        sim = Simulation(
            seed,
            sessions=40,
            utilisation=1.0,
            faults=Faults(start=0.1, reset=0.05, death=0.05, cancel=0.1),
            strays=0.1,
            max=5 + seed % 3,
            min=1,
            reserve=seed % 2,
            max_per_agent=4,
            max_per_profile=3,
            max_turns=9,
            max_age=60.0,
            idle_timeout=3.0,
            session_idle_timeout=2.0,
            spawn_burst=3,
            spawn_rate=2.0,
            breaker_failures=3,
            waiting_capacity=20,
        )
        sim.run(1_500)


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[str, dict[str, object]]]:
        sim = Simulation(7, sessions=50, utilisation=1.0, faults=Faults(), strays=0.1, max=4)
        sim.run(300)
        return sim.events

    assert history() == history()


def test_a_waiter_with_enough_time_is_never_starved_by_higher_priorities() -> None:
    """The ageing bound: a gap of 7 steps of 3 s, and a stream of requests of the higher priority that never ends."""
    world = World(max=1, age_step=3.0, waiting_capacity=10_000, waiting_timeout=1e6)
    running = world.held("first", priority=10)
    low = world.acquire("low", priority=3, timeout=40.0)
    for turn in range(80):
        world.acquire(f"high{turn}", priority=10)
        world.pass_time(0.5)
        world.release(running)
        world.run_until_settled()
        (running,) = world.holds
        if running == low:
            break
    assert running == low
    assert world.now - 1000.0 <= 7 * 3.0 + 3.0


def test_nor_by_a_busy_profile_of_another_kind() -> None:
    world = World(max=2, age_step=3.0, waiting_capacity=10_000, waiting_timeout=1e6)
    busy, rare = make_profile("busy"), make_profile("rare")
    running = [world.held("one", busy), world.held("two", busy)]
    low = world.acquire("low", rare, priority=5, timeout=40.0)
    for turn in range(80):
        world.acquire(f"a{turn}", busy)
        world.acquire(f"b{turn}", busy)
        world.acquire(f"c{turn}", busy)
        world.pass_time(0.5)
        for request in running:
            world.release(request)
        world.run_until_settled()
        running = list(world.holds)
        if low in running:
            break
    assert low in running
    assert world.now - 1000.0 <= 8.0
    assert not any(isinstance(error, AcquireTimeout) for error in world.errors.values())
