"""What the pool does without being asked, and which workers it keeps: transcripts of the machine."""

import msgspec
import pytest

from errors import UsageError
from pool import stimuli
from pool.stimuli import Spawn
from profiles.profile import SoftArgs
from tests.pool.transcript import play
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")

WARM = {
    "a target keeps so many idle workers within max": """
        prewarm a=2 b=1 => spawn w1 a, spawn w2 a, spawn w3 b; settle; hold r1 s; spawned 4; hold r2 t; spawned 4""",
    "a prewarming start serves a waiter, and no second one is made for it": """
        pool max=3; prewarm a=1; prewarm; ask r1 s; spawned 1; settle; held r1""",
    "idle reclaim leaves the targets alone": """
        pool max=4 min=0 idle_timeout=10.0; prewarm a=2; settle; wait 1000.0 => nothing; prewarm a=1 => stop w1 idle""",
    "a warm worker that is lost is started again within its budget": """
        pool max=2; prewarm a=1; ready w1; exit w1 => nothing; wait 0.5; workers w2""",
    "a worker that has waited for a request is fresh no more": """
        prewarm a=1; ready w1; wait 1; ask r1 s => reset w1 s, spawn w2 a""",
}

RETIRING = {
    "a worker retires after max_turns once its replacement is ready": """
        pool max=2 max_turns=2; use s; ask r1 s; free r1 => spawn w2 a; stopping; ready w2 => stop w1 retired; exit w1
        ask r2 s => reset w2 s s.jsonl fresh""",
    "at max the old worker goes first and the replacement follows": """
        pool max=1 max_turns=1; hold r1 s; free r1 => stop w1 retired; exit w1 => spawn w2 a""",
    "turns count as the release says": """
        pool max=1 max_turns=5; hold r1 s; free r1 turns=4 => nothing; ask r2 s; cancel r2 => nothing; ask r3 s
        free r3 => stop w1 retired""",
    "an old worker in use retires at its turn boundary": """
        pool max=1 max_age=100.0; hold r1 s; wait 120.0 => nothing; free r1 => stop w1 retired""",
    "a worker above max_rss retires at its turn boundary": """
        pool max=1 max_rss=100; hold r1 s; memory w1=100 w99=5; free r1 => nothing; hold r2 s; memory w1=101 => nothing
        free r2 => stop w1 retired""",
    "a replacement that does not come up does not keep the old worker": """
        pool max=2 max_turns=1; use s; fail w2 start; stopping w1 w2; exit w2; exit w1; wait 1.0; workers w3""",
    "the operator recycles at the boundary": """
        pool max=1; hold r1 s; recycle w1 => nothing; free r1 => stop w1 retired; exit w1 => spawn w2 a""",
    "the operator stops at once, and no other is started": """
        pool max=1; hold r1 s; stop w1 => stop w1 operator; exit w1 => nothing; ! stop w1: no worker
        ! recycle nobody: no worker""",
}

IDLE = {
    "an idle worker above min is stopped after idle_timeout and min stays": """
        pool max=3 min=1 idle_timeout=300.0; prewarm a=3; settle; prewarm; wait 299.0 => nothing
        wait 1.0 => stop w1 idle, stop w2 idle; settle; wait 10000.0 => nothing; next None""",
    "a worker in use does not count as idle": """
        pool max=3 min=0 idle_timeout=10.0; hold r1 s; wait 100.0 => nothing; free r1; wait 9.0 => nothing
        wait 1.0 => stop w1 idle; settle; session s parked""",
    "idle workers are stopped from the one used longest ago, with a session or without": """
        pool max=3 min=1 idle_timeout=10.0; use one; wait 1.0; use two; wait 1.0; use three; wait 1.0; forget one
        wait 7.0 => nothing; wait 1.0 => stop w2 idle; wait 100.0 => stop w3 idle""",
    "a session is parked so long after its last turn, and its worker is stopped then if it may not stay": """
        pool min=1 idle_timeout=300.0 session_idle_timeout=1800.0; use s; wait 1799.0 => nothing; session s active
        wait 1.0 => nothing; session s parking; settings min=0 => stop w1 idle""",
    "a session that is never parked keeps its worker": """
        pool min=0 idle_timeout=10.0 session_idle_timeout=0.0; use s; wait 1e6 => nothing; session s active
        next None""",
    "a parked session goes back to its idle worker by a reset": """
        pool max=3 session_idle_timeout=10.0; use s; wait 10.0; prewarm a=2; settle
        ask r1 s => reset w1 s s.jsonl, spawn w3 a; reset w1 => grant r1 w1""",
    "an idle worker that still has the transcript open makes way if it does not fit": """
        pool max=3 session_idle_timeout=10.0; use s; wait 10.0; ask r1 s b; stopping w1; settle; held r1@w2""",
    "an idle worker whose default was changed does not take its session back": """
        pool max=3 session_idle_timeout=10.0; use s a/-; use s a/large; wait 10.0; ask r1 s a/-; stopping w1; settle
        held r1@w2""",
    "a parked session whose old worker serves another waits for that reset": """
        pool max=2 session_idle_timeout=10.0; use s; wait 10.0; ask r1 other => reset w1 other; ask r2 s => nothing
        reset w1 => grant r1 w1, spawn w2 a; settle; held r2""",
    "a transcript from before is resumed": "know s old.jsonl; ask r1 s; ready w1 => reset w1 s old.jsonl fresh",
    "a forgotten session begins anew and its worker is free": """
        pool max=1; use s; forget s; session s unknown; ask r1 s => reset w1 s""",
    "a session in use cannot be forgotten": """
        ask r1 s; ready w1; ! forget s: in use; reset w1; ! forget s: in use; free r1; forget s; forget unknown""",
    "background processes of a forgotten session end with their worker": """
        use s; background w1 2; forget s => stop w1 retired""",
    "background processes of no session end with their worker": """
        prewarm a=1; ready w1; background w1 1 => stop w1 retired, spawn w2 a""",
}

OUTDATED = {
    "idle workers of an outdated profile stop at once and the others stay": """
        prewarm a/old=2 b=1; settle; prewarm; current a/new b => stop w1 retired, stop w2 retired; settle
        workers w3""",
    "the worker of a quiescent session stops and the session goes on elsewhere": """
        use s a/old; current a/new => stop w1 retired; ask r1 s a/new; exit w1; ready w2 => reset w2 s s.jsonl fresh
        settle
        held r1""",
    "a worker in use finishes its turn first": """
        hold r1 s a/old; current a/new => nothing; free r1 => stop w1 retired; exit w1 => nothing""",
    "output to deliver and processes of its own count as use": """
        use s a/old; busy s; background w1 1; current a/new => nothing; quiet s => nothing
        background w1 0 => stop w1 retired""",
    "a worker that starts for no request is stopped": """
        prewarm a/old=1; current a/new => stop w1 retired; exit w1 => nothing""",
    "a worker that starts for a waiter serves it and goes": """
        ask r1 s a/old; current a/new => nothing; settle; held r1; free r1 => stop w1 retired; exit w1 => nothing""",
    "a worker whose waiter has left goes as soon as it is ready": """
        ask r1 s a/old; current a/new; cancel r1; ready w1 => stop w1 retired""",
    "a request of before still gets a worker of its profile": """
        pool max=1; hold r1 s b; ask r2 t a/old; current a/new b => nothing; free r1; settle; held r2""",
    "neither target nor loss brings an outdated profile back": """
        pool max=2; prewarm a/old=1 b=1; settle; hold r1 s a/old; current b; exit w1; free r1; wait 100.0; settle
        workers w2""",
    "what was lost before the change is not started again": """
        pool max=2; use s a/old; pause; exit w1; current b; resume; wait 100.0; workers""",
    "an outdated worker is not replaced by one of its kind": """
        pool max=4 max_turns=1 max_age=50.0; hold r1 s a/old; current b; wait 100.0; recycle w1
        free r1 => stop w1 retired
        spawned 1""",
    "a worker that waits for its replacement goes with it": """
        pool max=2; prewarm a/old=1; ready w1; prewarm; recycle w1 => spawn w2 a/old; current b; stopping w1 w2""",
    "a change that outdates nothing stops no worker, and what is to be kept warm is": """
        prewarm a/new=1; ready w1; current a/new => nothing; exit w1; wait 10.0; workers w2""",
    "a worker that came too late is not replaced when it grows old": """
        pool max=4 max_age=50.0; ask r1 s a/old; current b; settle; wait 100.0; spawned 1
        free r1 => stop w1 retired""",
    "it does not wait for a replacement that serves another": """
        pool max=2; hold r1 s a/old; recycle w1; ask r2 t a/old; current b; free r1 => stop w1 retired; settle
        held r2@w2""",
}

_TWO = "hold p1 first; background w1 1; free p1; wait 1.0; hold p2 second; background w2 1; free p2; wait 1.0"
"""Two sessions leave a command running, one after the other."""
_ONE = "hold p1 first; background w1 1; free p1; wait 1.0"
PINNED = {
    "a pool of two with two endless commands serves a third session": f"""
        pool max=2; {_TWO}; ask r1 third => stop w1 unpinned; settle; held r1; workers w2 w3""",
    "a pool of two with two endless commands serves a session of another profile": f"""
        pool max=2; {_TWO}; ask r1 third b => stop w1 unpinned; settle; held r1; workers w2 w3
        event worker_exited worker=w1 cause=unpinned""",
    "one fewer than all are left alone whoever waits": f"""
        pool max=2; {_ONE}; hold r1 second; ask r2 third; wait 20.0 => nothing; free r1; settle; held r2@w2
        stopping""",
    "where no request waits all may be kept": f"""
        pool max=2; {_TWO}; wait 10000.0 => nothing; ask r1 third spawn=False; stopping""",
    "a worker that becomes one too many while a request waits is stopped at once": f"""
        pool max=2; {_ONE}; hold r1 second; ask r2 third b; background w2 1; free r1 => stop w1 unpinned""",
    "fewer may be kept where the settings say so": f"""
        pool max=4 max_pinned=1; {_TWO}; hold r1 third; hold r2 fourth; stopping; ask r3 fifth => stop w1 unpinned
        settle
        held r3; ask r4 sixth; wait 20.0 => nothing; open r4""",
    "the session used longest ago loses its command": f"""
        pool max=2; {_TWO}; use first; ask r1 third => stop w2 unpinned""",
    **{
        f"commands do not use up {limit}": f"pool max=8 {limit}=2; {_TWO}; ask r1 third; stopping w1; settle; held r1"
        for limit in ("max_per_agent", "max_per_profile")
    },
    "a session does not wait for its own commands when it needs another worker": f"""
        pool max=2; {_ONE}; ask r1 first b => stop w1 mismatch; exit w1 => spawn w2 b; settle; held r1""",
    "nor after a reload that changed its profile": f"""
        pool max=2; {_ONE}; current b; wait 10000.0 => nothing; ask r1 first b; stopping w1; settle; held r1""",
    **{
        f"a kept worker that is to retire by {why} serves its session and ends with the command": f"""
        pool max=2 max_age=100.0; {_ONE}; {step}wait 1000.0; hold r1 first; held r1@w1; free r1; stopping w2
        background w1 0; stopping w1 w2"""
        for why, step in (("age", ""), ("an operator", "recycle w1; "))
    },
    "who is refused hears for whom workers are kept": f"""
        pool max=2 waiting_capacity=1; {_ONE}; hold r0 second; ask r1 third timeout=5.0; ask r2 fourth; wait 5.0
        error r1 AcquireTimeout background commands keep workers for first
        error r2 PoolSaturated background commands keep workers for first""",
}  # fmt: skip
TRANSCRIPTS = WARM | RETIRING | IDLE | OUTDATED | PINNED


@pytest.mark.parametrize("transcript", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_the_machine_keeps_workers_as_the_transcript_says(transcript: str) -> None:
    play(transcript)


def test_old_workers_retire_with_jitter_so_that_they_do_not_all_go_at_once() -> None:
    world = play("pool max=8 max_age=1000.0 idle_timeout=1e9; prewarm a=4; settle; wait 899.0 => nothing").world
    ages = []
    for _ in range(220):
        if any(isinstance(action, Spawn) for action in world.pass_time(1.0)):
            ages.append(world.now)
        world.run_until_settled()
    assert len(set(ages)) >= 3
    assert max(ages[:4]) - 1000.0 <= 1101.0


def test_a_default_of_another_provider_cannot_be_asked_for_so_the_worker_is_replaced() -> None:
    world = play("use s a/-").world
    default = make_profile("a", model=None)
    other = msgspec.structs.replace(default, soft=SoftArgs("other", None, "low"), signature="of the other provider")
    request = world.acquire("s", other)
    assert world.workers["w1"].stopping
    world.run_until_settled()
    assert world.worker_of(request) == "w2"


def test_what_is_not_needed_is_forgotten() -> None:
    world = World(max=2, min=0, idle_timeout=1.0, session_idle_timeout=1.0)
    for number in range(20):
        request = world.acquire(f"s{number}", make_profile(f"p{number}", agent=f"agent{number}"))
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


def test_nothing_is_remembered_of_an_outdated_profile() -> None:
    state = play("pool max=2; prewarm a/old=1 b=1; settle; current b; settle").world.machine._state
    assert list(state.profiles) == [B.signature]
    assert [kind.profile for kind in state.prewarm_targets] == [B]


@pytest.mark.parametrize(
    ("failed", "then"),
    [
        ("ask r1 s; exit w1", "cancel r1; wait 200.0; settle; wait 1000.0"),
        ("pool breaker_failures=1; ask r1 s; exit w1", "wait 1000.0"),
    ],
    ids=["tried again", "its breaker opened, and it was not tried again"],
)
def test_a_failing_profile_is_forgotten_after_its_failures_are_too_old(failed: str, then: str) -> None:
    assert len(play(failed).world.machine._state.profiles) == 1
    machine = play(f"{failed}; {then}").world.machine
    assert not machine._state.profiles
    assert machine.next_wakeup() is None


def test_the_snapshot_says_who_has_what_and_why_others_wait() -> None:
    world = play("""pool max=2 waiting_timeout=100.0; hold r1 one; ask r2 two b; ask r3 three priority=10; ask r4 one b
        wait 3.0""").world
    snapshot = world.machine.snapshot(world.now)
    assert (snapshot.counts.total, snapshot.counts.leased, snapshot.counts.starting) == (2, 1, 1)
    found = [(each.id, each.state, each.session, each.holds) for each in snapshot.workers]
    assert found == [("w1", "leased", "one", 1), ("w2", "starting", None, 0)]
    waiters = {each.session: each for each in snapshot.waiters}
    assert list(waiters) == ["three", "two", "one"]
    assert waiters["three"].position == 1
    assert waiters["three"].priority_now == pytest.approx(11.0)
    assert waiters["three"].expires_in == pytest.approx(97.0)
    assert waiters["three"].why == "the pool is full, and no worker can make room"
    assert waiters["one"].state == "blocked"
    assert waiters["two"].why == "a worker is on its way"
    assert "retires" in waiters["one"].why
    assert msgspec.json.encode(snapshot)


def test_the_snapshot_counts_what_happened_and_what_is_kept_warm() -> None:
    world = play("pool max=1; use one; use two; use one b; ask r1 gone; cancel r1").world
    counters = world.machine.snapshot(world.now).counters
    assert (counters.spawned, counters.releases, counters.active, counters.cancelled) == (2, 3, 0, 1)
    assert sum(counters.grants.values()) == 3
    assert counters.resumed == 1
    assert counters.exits == {"evicted": 1}
    world = play("prewarm a=2 b=1; settle; hold r1 s; hold r2 t").world
    warm = {each.profile: (each.warm, each.min) for each in world.machine.snapshot(world.now).profiles}
    assert warm == {A.short: (1, 2), B.short: (1, 1)}


_ASKED = "one waits for a person: pool approve -s one c7"


@pytest.mark.parametrize(
    ("story", "session", "place", "needs"),
    [
        ("pool max=1; hold r1 one; ask r2 two; ask r3 three priority=10", "two", 2, "in one, or pool.max (1) has to"),
        ("pool max=1; hold r1 one; ask r2 two; ask r3 three priority=10", "three", 1, "in one, or pool.max (1) has to"),
        ("pool max=1; hold r1 one; asks one c7; ask r2 two", "two", 1, f"in one ({_ASKED}), or pool.max"),
        ("pool max=1; hold r1 one; asks one c7; asks one; ask r2 two", "two", 1, "in one, or pool.max"),
        ("pool max=9; hold r1 one; asks one c7; ask r2 one b", "one", 1, f"in this session has to end ({_ASKED})"),
        ("pool max=9; ask r1 one", "one", 1, "the worker that is on its way has to be ready"),
        ("pool max=9; hold r1 one; pause; ask r2 two", "two", 1, "`pool resume` has to be given"),
        ("pool max=9; hold r1 one; ask r2 one b", "one", 1, "what uses worker w1 in this session has to end"),
        ("pool max=2 reserve=1; hold r1 one; ask r2 two", "two", 1, "has to end in one, or a request of higher"),
        ("pool max=9 max_per_agent=1; hold r1 one; ask r2 two", "two", 1, "in one, or the limit of agent main has"),
        ("pool max=9 max_per_profile=1; hold r1 one; ask r2 two", "two", 1, "in one, or the next attempt to start"),
        ("pool max=9 spawn_burst=1; ask r1 one; ask r2 two b", "two", 2, "100 workers a second are started"),
    ],
)
def test_explain_says_where_a_waiting_request_stands_and_what_would_have_to_happen(
    story: str, session: str, place: int, needs: str
) -> None:
    wait = play(story).world.machine.explain(session).wait
    assert wait is not None
    assert (wait.place, needs in wait.needs) == (place, True), wait


def test_explain_names_some_of_many_sessions_and_has_no_wait_where_none_waits() -> None:
    holds = "; ".join(f"hold r{number} s{number}" for number in range(5))
    machine = play(f"pool max=5; {holds}; ask r9 last").world.machine
    wait = machine.explain("last").wait
    assert wait is not None
    assert "in one of s0, s1, s2 or 2 more, or pool.max (5)" in wait.needs
    assert machine.explain("s1").wait is None


def test_restarts_count_the_workers_that_ended_by_themselves() -> None:
    machine = play("pool min=1 max=2; hold r1 s; exit w1; settle; hold r2 t; stop w2").world.machine
    profiles = {each.profile: each.restarts for each in machine.snapshot(0.0).profiles}
    assert profiles == {A.short: 1}


def test_explain_says_for_every_worker_how_well_it_fits() -> None:
    world = play("hold r1 s; hold r2 t a/large; hold r3 u b").world
    found = {each.worker: each for each in world.machine.explain("s").workers}
    assert [found[name].level for name in ("w1", "w2", "w3")] == ["bound", "hard", "none"]
    assert found["w1"].difference == ""
    assert "model" in found["w2"].difference
    assert "cwd" in found["w3"].difference
    assert [each.level for each in world.machine.explain(None, B).workers] == ["none", "none", "exact"]
    with pytest.raises(UsageError, match="unknown"):
        world.machine.explain("nobody")
