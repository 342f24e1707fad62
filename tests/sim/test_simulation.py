"""Hours of virtual time in seconds: load, faults, and every promise checked at every event. A failing seed is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from pool import stimuli
from pool.available import AvailableIndex
from pool.binding import SessionBinder
from pool.settings import PoolSettings
from pool.state import PoolState
from pool.workers import Workers
from tests.pool.world import World, make_profile
from tests.sim import promises
from tests.sim.__main__ import main
from tests.sim.faults import ALL_FAULTS, Fault, named_faults
from tests.sim.loads import LOADS, Ask, Event, Load, Scale
from tests.sim.nodes import NodeSimulation, node_faults
from tests.sim.simulation import Simulation
from tests.sim.verdict import judge

SMALL = Scale(sessions=400, workers=8, turn=3.0)


@contextmanager
def named(seed: int) -> Iterator[int]:
    try:
        yield seed
    except BaseException as exc:
        exc.add_note(f"simulation seed: {seed}")
        raise


def simulate(
    seed: int, load: str, hours: float, faults: tuple[str, ...] = (), *, scale: Scale = SMALL, haste: float = 1.0
) -> Simulation:
    sim = Simulation(seed, LOADS[load], scale, named_faults(faults, seed, haste))
    sim.run(hours)
    return sim


def test_ten_thousand_sessions_share_sixty_four_workers_without_anybody_waiting_in_vain() -> None:
    with named(1) as seed:
        sim = simulate(seed, "L1", 0.1, scale=Scale())
        assert judge(sim).shortfalls == ()
        assert sim.totals["spawned"] < 1000, "a rebind is a reset, not a new process"
        assert sim.machine.snapshot(sim.now).counters.parked > 300


def test_the_same_with_every_fault_at_once() -> None:
    with named(2) as seed:
        sim = simulate(seed, "L1", 0.07, ALL_FAULTS, scale=Scale())
        assert judge(sim).shortfalls == ()


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("faults", [(), ALL_FAULTS], ids=["without faults", "with every fault"])
def test_every_load_is_borne_by_a_small_pool(load: str, faults: tuple[str, ...]) -> None:
    with named(3) as seed:
        sim = simulate(seed, load, 0.1, faults, haste=0.125)  # as many faults to each worker as in a large pool
        assert judge(sim).shortfalls == ()


@pytest.mark.parametrize("faults", [(), ALL_FAULTS], ids=["nodes alone", "with every fault"])
def test_no_worker_is_started_without_a_slot_on_two_hundred_nodes_that_are_lost_and_emptied(
    faults: tuple[str, ...],
) -> None:
    with named(6) as seed:
        sim = NodeSimulation(
            seed, "L1", Scale(sessions=3000, workers=600), [*node_faults(seed), *named_faults(faults, seed)]
        )
        sim.run(0.1)
    wanted = ("lost nodes", "lost workers", "emptied nodes", "drained nodes", "near", "insisted")
    assert [sim.totals[each] > 3 for each in (*wanted, "ends beside a full group")] == [True] * 7, sim.totals


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_every_fault_strikes_and_breaks_no_promise(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    wait = Fault._wait

    def count(self: Fault, sim: Simulation) -> None:
        waits.append(sim.now)
        wait(self, sim)

    monkeypatch.setattr(Fault, "_wait", count)
    with named(4) as seed:
        simulate(seed, "L1", 0.05, (fault,), haste=40.0)
    assert len(waits) > 5


@pytest.mark.parametrize("seed", range(10, 13))
def test_small_pools_with_every_limit_in_force_and_many_faults_keep_their_promises(seed: int) -> None:
    with named(seed):
        sim = Simulation(
            seed,
            LOADS["L1"],
            Scale(sessions=40, workers=5 + seed % 3, turn=2.0),
            named_faults(ALL_FAULTS, seed, 3.0),
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
        sim.run(0.2)
        assert sim.totals["granted"] > 500


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> tuple[object, ...]:
        sim = simulate(7, "L1", 0.05, ALL_FAULTS, haste=5.0)
        return sim.now, sim.totals, sim.waits, sim.spawn_times, sim.events

    assert history() == history()


def test_a_profile_whose_starts_all_fail_costs_the_others_nothing() -> None:
    class Broken(Simulation):
        broken = True

        def come_up(self, worker: str) -> None:
            paper = self.workers.get(worker)
            fails = paper is not None and not paper.stopping and paper.profile.signature == rare
            if fails and self.broken:
                self.start_failures = 1.0
            super().come_up(worker)
            self.start_failures = 0.0

    class Whole(Broken):
        broken = False

    def p99_of_others(kind: type[Broken]) -> float:
        with named(8) as seed:
            sim = kind(seed, LOADS["L1"], Scale(sessions=2_000, workers=32, turn=5.0))
            sim.run(0.1)
        assert (sim.totals["refused: profile_broken"] > 10) == kind.broken
        others = sorted(wait for name, waits in sim.waits_of.items() if name != rare for wait in waits)
        return others[len(others) * 99 // 100]

    rare = make_profile("b").signature
    assert p99_of_others(Broken) <= 2 * p99_of_others(Whole)


def strays(rng: Random, scale: Scale) -> Iterator[Event]:
    """Few sessions, which come with another profile each time, and do not mind another turn of theirs."""
    asks = LOADS["L1"].events(rng, scale._replace(sessions=20))
    return (event._replace(stray=True) for event in asks if isinstance(event, Ask))


def test_sessions_that_come_with_another_profile_each_time_are_served() -> None:
    with named(6) as seed:
        sim = Simulation(seed, Load(name="strays", about="", events=strays), SMALL)
        sim.run(0.1)
        assert judge(sim).in_vain < 0.1 * sim.request_count
        assert sim.machine.snapshot(sim.now).counters.grants["bound"] > 30


@pytest.mark.parametrize(
    ("where", "what", "complaint"),
    [
        (PoolState, "expire", "still waits"),
        (PoolState, "finish", "requests are open by its books"),
        (Workers, "_void_holds", "holds are in force by its books"),
        (AvailableIndex, "match_unbound", "waits beside"),
        (SessionBinder, "serve_waiting", "waits behind|waits beside"),
    ],
)
def test_a_machine_that_leaves_out_one_step_is_found_out(
    where: type, what: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, what, lambda *_: None)
    monkeypatch.setattr(promises, "FULL_SCAN_EVERY", 20)
    load = (
        LOADS["L2"] if where is PoolState else Load(name="strays", about="other profiles all the time", events=strays)
    )
    sim = Simulation(5, load, SMALL, named_faults(("F1", "F2"), 5), session_idle_timeout=2.0)
    with pytest.raises(AssertionError, match=complaint):  # a machine that merely crashes is found out by nobody
        sim.run(0.3)


def test_too_many_starts_in_a_window_are_noticed() -> None:
    sim = Simulation(1, LOADS["L3"], SMALL)
    sim.machine.handle(stimuli.SettingsChanged(PoolSettings(max=8, spawn_burst=100, spawn_rate=100.0)), 0.0)
    sim.settings = PoolSettings(max=8, spawn_burst=2, spawn_rate=1.0)
    sim.promises = type(sim.promises)(sim)
    with pytest.raises(AssertionError, match="starts since"):
        sim.run(0.1)


def test_the_command_prints_a_line_for_each_run_and_repeats_it_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--seed", "9", "--load", "L1,L5", "--hours", "0.05", "--sessions", "50", "--workers", "4", "--faults", "F1"]
    assert main(line) == 0
    first = capsys.readouterr().out.splitlines()
    assert main(line) == 0
    second = capsys.readouterr().out.splitlines()
    assert [row.split()[:-1] for row in first] == [row.split()[:-1] for row in second]
    assert [row.split()[:3] for row in first[1:]] == [["L1", "F1", "9"], ["L5", "F1", "9"]]


def test_a_broken_promise_is_printed_with_its_story_its_seed_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PoolState, "expire", lambda *_: None)
    line = ["--seed", "9", "--load", "L2", "--faults", "none", "--hours", "0.05", "--sessions", "50", "--workers", "4"]
    with pytest.raises(AssertionError):
        main(line)
    told = capsys.readouterr().err
    assert "-> " in told
    assert "still waits, its deadline was" in told
    again = "--seed 9 --load L2 --faults none --hours 0.05 --sessions 50 --workers 4 --turn 10"
    assert f"seed 9 failed; to see it again: python -m tests.sim {again}" in told


def test_a_pool_that_does_too_little_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--load", "L1", "--faults", "none", "--hours", "1", "--sessions", "30", "--workers", "2", "--turn", "90"]
    assert main(line) == 1
    assert "waited in vain" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--load", "L9"), ("--faults", "F1,F8")])
def test_unknown_loads_and_faults_are_named(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([option, value])
    assert "there is no" in capsys.readouterr().err


@pytest.mark.parametrize("hours", ["0", "inf", "nan", "many"])
def test_a_time_that_is_none_or_has_no_end_is_refused(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"--hours={hours}", "--load", "L1", "--faults", "none"])
    assert caught.value.code == 2
    assert f"'{hours}' is no number of hours above 0" in capsys.readouterr().err


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
