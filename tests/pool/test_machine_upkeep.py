"""What the pool does without being asked: idle reclaim, parking, retiring, keeping warm, forgetting, reporting."""

import msgspec
import pytest

from errors import UsageError
from pool import stimuli
from pool.stimuli import Reset, Spawn, Stop, StopReason
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def session_states(world: World) -> dict[str, str]:
    return {session.key: session.state for session in world.machine.snapshot(world.now).sessions}


# --- prewarm ---------------------------------------------------------------------------------------------------------


def test_a_target_keeps_so_many_idle_workers_within_max() -> None:
    world = World(max=4)
    assert world.tell(stimuli.SetPrewarm(((A, 2), (B, 1)))) == [Spawn("w1", A), Spawn("w2", A), Spawn("w3", B)]
    world.run_until_settled()
    world.held("s", A)
    assert len(world.workers) == 4
    world.held("t", A)
    assert len(world.workers) == 4
    warm = {each.profile: (each.warm, each.min) for each in world.machine.snapshot(world.now).profiles}
    assert warm == {A.short: (1, 2), B.short: (1, 1)}


def test_a_prewarming_start_serves_a_waiter_and_no_second_one_is_made_for_it() -> None:
    world = World(max=3)
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    world.tell(stimuli.SetPrewarm(()))
    request = world.acquire("s", A)
    assert len(world.spawn_times) == 1
    world.run_until_settled()
    assert request in world.holds


def test_idle_reclaim_leaves_the_targets_alone() -> None:
    world = World(max=4, min=0, idle_timeout=10.0)
    world.tell(stimuli.SetPrewarm(((A, 2),)))
    world.run_until_settled()
    assert world.pass_time(1000.0) == []
    assert len(world.tell(stimuli.SetPrewarm(((A, 1),)))) == 1


def test_a_warm_worker_that_is_lost_is_started_again_within_its_budget() -> None:
    world = World(max=2)
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    world.ready("w1")
    assert world.exit("w1") == []
    world.pass_time(0.5)
    assert list(world.workers) == ["w2"]


# --- retiring --------------------------------------------------------------------------------------------------------


def test_a_worker_retires_after_max_turns_once_its_replacement_is_ready() -> None:
    world = World(max=2, max_turns=2)
    world.release(world.held("s"))
    second = world.acquire("s")
    assert world.release(second) == [Spawn("w2", A)]
    assert not world.workers["w1"].stopping
    assert world.ready("w2") == [Stop("w1", StopReason.RETIRED)]
    world.exit("w1")
    world.acquire("s")
    assert world.workers["w2"].resetting == ("s", "s.jsonl")


def test_at_max_the_old_worker_goes_first_and_the_replacement_follows() -> None:
    world = World(max=1, max_turns=1)
    assert world.release(world.held("s")) == [Stop("w1", StopReason.RETIRED)]
    assert world.exit("w1") == [Spawn("w2", A)]


def test_turns_count_as_the_release_says() -> None:
    world = World(max=1, max_turns=5)
    request = world.held("s")
    assert world.release(request, turns=4) == []
    cancelled = world.acquire("s")
    assert world.cancel(cancelled) == []
    assert [type(action) for action in world.release(world.acquire("s"))] == [Stop]


def test_old_workers_retire_with_jitter_so_that_they_do_not_all_go_at_once() -> None:
    world = World(max=8, max_age=1000.0, idle_timeout=1e9)
    world.tell(stimuli.SetPrewarm(((A, 4),)))
    world.run_until_settled()
    assert world.pass_time(899.0) == []
    ages = []
    for _ in range(220):
        if any(isinstance(action, Spawn) for action in world.pass_time(1.0)):
            ages.append(world.now)
        world.run_until_settled()
        if len(ages) >= 4:
            break
    assert len(set(ages)) >= 3
    assert max(ages) - 1000.0 <= 1101.0


def test_an_old_worker_in_use_retires_at_its_turn_boundary() -> None:
    world = World(max=1, max_age=100.0)
    request = world.held("s")
    assert world.pass_time(120.0) == []
    assert world.release(request) == [Stop("w1", StopReason.RETIRED)]


def test_a_worker_above_max_rss_retires_at_its_turn_boundary() -> None:
    world = World(max=1, max_rss=100)
    request = world.held("s")
    assert world.tell(stimuli.MemoryUsage({"w1": 100, "w99": 5})) == []
    assert world.tell(stimuli.MemoryUsage({"w1": 101})) == []
    assert world.release(request) == [Stop("w1", StopReason.RETIRED)]


def test_a_replacement_that_does_not_come_up_does_not_keep_the_old_worker() -> None:
    world = World(max=2, max_turns=1)
    world.release(world.held("s"))
    world.fail("w2", stimuli.FailureKind.START)
    assert world.workers["w1"].stopping
    world.exit("w2")
    world.exit("w1")
    world.pass_time(1.0)
    assert list(world.workers) == ["w3"], "capacity comes back within the budget"


def test_the_operator_recycles_at_the_boundary_and_stops_at_once() -> None:
    world = World(max=1)
    request = world.held("s")
    assert world.tell(stimuli.RecycleWorker("w1")) == []
    assert world.release(request) == [Stop("w1", StopReason.RETIRED)]
    assert world.exit("w1") == [Spawn("w2", A)]
    world.ready("w2")
    world.held("s")
    assert world.tell(stimuli.StopWorker("w2")) == [Stop("w2", StopReason.OPERATOR)]
    assert world.exit("w2") == [], "an operator who stops a worker does not want another one"
    for stimulus in (stimuli.StopWorker("w2"), stimuli.RecycleWorker("nobody")):
        with pytest.raises(UsageError, match="no worker"):
            world.tell(stimulus)


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_transcript_from_before_is_resumed() -> None:
    world = World()
    world.tell(stimuli.SessionKnown("s", "/old.jsonl"))
    world.acquire("s")
    assert world.ready("w1") == [Reset("w1", "s", "/old.jsonl", is_fresh=True)]


def test_a_forgotten_session_begins_anew_and_its_worker_is_free() -> None:
    world = World(max=1)
    world.release(world.held("s"))
    world.tell(stimuli.ForgetSession("s"))
    assert session_states(world) == {}
    world.acquire("s")
    assert world.workers["w1"].resetting == ("s", None)


def test_a_session_in_use_cannot_be_forgotten() -> None:
    world = World()
    request = world.acquire("s")
    world.ready("w1")
    with pytest.raises(UsageError, match="in use"):
        world.tell(stimuli.ForgetSession("s"))
    world.reset_done("w1")
    with pytest.raises(UsageError, match="in use"):
        world.tell(stimuli.ForgetSession("s"))
    world.release(request)
    world.tell(stimuli.ForgetSession("s"))
    world.tell(stimuli.ForgetSession("unknown"))


def test_background_processes_of_a_forgotten_session_end_with_their_worker() -> None:
    world = World()
    world.release(world.held("s"))
    world.tell(stimuli.BackgroundCount("w1", 2))
    assert world.tell(stimuli.ForgetSession("s")) == [Stop("w1", StopReason.RETIRED)]
    world = World()
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    world.ready("w1")
    assert world.tell(stimuli.BackgroundCount("w1", 1))[0] == Stop("w1", StopReason.RETIRED)


def test_what_nobody_needs_is_forgotten() -> None:
    world = World(max=2, min=0, idle_timeout=1.0, session_idle_timeout=1.0)
    for number in range(50):
        profile = make_profile(f"p{number}", agent=f"agent{number}")
        request = world.acquire(f"s{number}", profile)
        while request not in world.holds:
            (name,) = (n for n, paper in world.workers.items() if not paper.stopping)
            if world.workers[name].ready:
                world.reset_done(name, transcript=None)
            else:
                world.ready(name)
        world.set_busy(f"s{number}")
        world.release(request)
        world.set_quiet(f"s{number}")
        world.pass_time(10.0)
        world.run_until_settled()
    world.set_quiet("never heard of")
    world.tell(stimuli.SessionKnown("gone", None))
    state = world.machine._state
    assert not state.workers
    assert (len(state.sessions), len(state.profiles), len(state.groups), len(state.agents)) == (0, 0, 0, 0)
    assert len(state.timers) == 0


def test_a_failing_profile_is_forgotten_only_after_its_failures_are_too_old() -> None:
    world = World()
    request = world.acquire("s")
    world.exit("w1")
    world.cancel(request)
    assert len(world.machine._state.profiles) == 1
    world.pass_time(200.0)
    world.run_until_settled()
    world.pass_time(1000.0)
    assert len(world.machine._state.profiles) == 0


def test_so_is_one_whose_breaker_opened_and_that_nobody_tried_again() -> None:
    world = World(breaker_failures=1)
    world.acquire("s")
    world.exit("w1")
    assert world.machine.snapshot(world.now).profiles[0].breaker == "open"
    world.pass_time(1000.0)
    assert not world.machine._state.profiles
    assert world.machine.next_wakeup() is None


# --- reports ---------------------------------------------------------------------------------------------------------


def test_the_snapshot_says_who_has_what_and_why_others_wait() -> None:
    world = World(max=2, waiting_timeout=100.0)
    world.held("one", A)
    world.acquire("two", B)
    world.acquire("three", A, priority=10)
    world.acquire("one", B)
    world.pass_time(3.0)
    snapshot = world.machine.snapshot(world.now)
    assert (snapshot.counts.total, snapshot.counts.leased, snapshot.counts.starting) == (2, 1, 1)
    assert [(each.id, each.state, each.session, each.holds) for each in snapshot.workers] == [
        ("w1", "leased", "one", 1),
        ("w2", "starting", None, 0),
    ]
    waiters = {each.session: each for each in snapshot.waiters}
    assert [each.session for each in snapshot.waiters] == ["three", "two", "one"]
    assert waiters["three"].position == 1
    assert waiters["three"].priority_now == pytest.approx(11.0)
    assert waiters["three"].expires_in == pytest.approx(97.0)
    assert waiters["three"].why == "the pool is full, and no worker can make room"
    assert {name: waiter.state for name, waiter in waiters.items()}["one"] == "blocked"
    assert waiters["two"].why == "a worker is on its way"
    assert "retires" in waiters["one"].why
    assert msgspec.json.encode(snapshot)


def test_the_snapshot_counts_what_happened() -> None:
    world = World(max=1)
    world.release(world.held("one", A))
    world.release(world.held("two", A))
    world.release(world.held("one", B))
    world.cancel(world.acquire("gone", A))
    counters = world.machine.snapshot(world.now).counters
    assert (counters.spawned, counters.releases, counters.active, counters.cancelled) == (2, 3, 0, 1)
    assert sum(counters.grants.values()) == 3
    assert counters.resumed == 1
    assert counters.exits == {"evicted": 1}


def test_explain_says_for_every_worker_how_well_it_fits() -> None:
    world = World()
    world.held("s", A)
    world.held("t", make_profile("a", model="large"))
    world.held("u", B)
    found = {each.worker: each for each in world.machine.explain("s")}
    assert [found[name].level for name in ("w1", "w2", "w3")] == ["bound", "hard", "none"]
    assert found["w1"].difference == ""
    assert "model" in found["w2"].difference
    assert "cwd" in found["w3"].difference
    assert [each.level for each in world.machine.explain(None, B)] == ["none", "none", "exact"]
    with pytest.raises(UsageError, match="unknown"):
        world.machine.explain("nobody")
