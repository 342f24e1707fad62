"""Who gets which worker, what is done to get there, who waits and who is refused: transcripts of the machine."""

import copy

import msgspec
import pytest

from errors import UsageError
from pool import stimuli
from pool.machine import PoolMachine
from pool.settings import PoolSettings
from pool.stimuli import WorkerHold
from tests.pool.transcript import play
from tests.pool.world import World, make_profile
from wire.units import Seconds

A = make_profile("a")
B = make_profile("b")

ORDER = {
    "a first request spawns a worker, resets it and is granted": """
        ask r1 s => spawn w1 a; ready w1 => reset w1 s fresh; reset w1 => grant r1 w1; level r1 exact
        session s active s.jsonl""",
    "the session's own worker is granted at once": "use s; ask r1 s => grant r1 w1; level r1 bound",
    "two requests of one session hold its worker together": """
        hold r1 s; ask r2 s => grant r2 w1; free r1; hold r3 other; held r2@w1 r3@w2""",
    "requests of a session that is being prepared join the first": """
        ask r1 s; ask r2 s => nothing; ready w1; ask r3 s => nothing
        reset w1 => grant r1 w1, grant r2 w1, grant r3 w1""",
    "a joined request lives on when the first is cancelled": """
        ask r1 s; ask r2 s; cancel r1; settle; held r2; spawned 1""",
    "a free worker of the same profile is reset and granted": """
        prewarm a=1; ready w1; ask r1 s => reset w1 s fresh, spawn w2 a; reset w1 => grant r1 w1""",
    "another model is reconciled before the grant": """
        pool max=1; prewarm a=1; ready w1; ask r1 s a/large; reset w1 => reconcile w1 large
        reconciled w1 => grant r1 w1; level r1 hard""",
    "a superset of resources serves too": """
        pool max=1; prewarm a+x+y=1; ready w1; hold r1 s a+x; level r1 soft_superset""",
    "the session's own worker is reconciled too": """
        use s; ask r1 s a/large => reconcile w1 large; reconciled w1 => grant r1 w1; level r1 bound""",
    "a running turn keeps its model, and the other request waits for the boundary": """
        hold r1 s; ask r2 s a/large => nothing; ask r3 s => grant r3 w1; free r1 => nothing
        free r3 => reconcile w1 large; reconciled w1 => grant r2 w1""",
    "a bound worker that does not fit is stopped first and the session resumes on another": """
        use s; ask r1 s b => stop w1 retired; exit w1 => spawn w2 b; ready w2 => reset w2 s s.jsonl fresh
        reset w2 => grant r1 w2""",
    "a bound worker that does not fit ends its turn first": """
        hold r1 s; ask r2 s b => nothing; busy s; free r1 => nothing; quiet s => stop w1 retired; settle; held r2@w2""",
    "a default that was changed cannot be restored": """
        use s a/-; use s a/large; ask r1 s a/-; stopping w1; settle; held r1@w2""",
    "a spawn is demand: its request takes whatever fits first": """
        hold r1 one; ask r2 two => spawn w2 a; free r1 => reset w1 two; reset w1 => grant r2 w1""",
    "no more workers are started than waiters want": """
        pool max=10; ask r1 one; ask r2 two; ask r3 three; ask r4 one; spawned 3""",
    "a starting worker whose waiter has left serves the next one that fits": """
        pool max=10; ask r1 one; cancel r1; ask r2 two a/large => nothing; settle; held r2@w1; level r2 hard""",
    "the waiter whose worker was taken by a better one gets another": """
        pool max=2; ask r1 one; ask r2 two priority=10; ask r3 three; cancel r3; fail w2 start
        ready w1 => reset w1 two fresh
        exit w2; wait 1.0; settle; held r1 r2""",
    "at max the least recently used quiet worker is rebound in place": """
        pool max=2; use cold; wait 1.0; use warm; ask r1 new => reset w1 new; session cold parking
        reset w1 => grant r1 w1; session cold parked; spawned 2""",
    "a request that is rebound at once has not waited": """
        pool max=1; use one; ask r1 two => reset w1 two; settle; held r1; counter enqueued 1; counter served 1""",
    "a quiet worker keeps its session where one that no request waits for is starting": """
        pool max=2; use quiet; prewarm a=1; ask r2 new => nothing; ready w2 => reset w2 new fresh""",
    "and where a slot that no request waits for is coming free": """
        pool max=2; hold r1 quiet; use other b; ask r2 gone; cancel r2; stopping w2; free r1; ask r3 new => nothing
        exit w2 => spawn w3 a; ready w3 => reset w3 new fresh""",
    "one of the same session is not overtaken by its next request": """
        pool max=2; use quiet; ask r2 new b => spawn w2 b; ask r3 new => nothing""",
    "nor is another worker taken from its session for one that is in use": """
        pool max=2; hold r1 s b; use quiet; ask r2 s => nothing; session quiet active""",
    "a request that comes after its deadline takes no session's worker": """
        pool max=1; use quiet; ask r1 late timeout=0 => reject r1 acquire_timeout; session quiet active""",
    "a rebound session resumes its transcript when it comes back": """
        pool max=1; use one; use two; ask r1 one => reset w1 one one.jsonl; reset w1; counter resumed 1""",
    "a parking session waits until its old worker has let go of the transcript": """
        pool max=2; use one; hold r1 two; ask r2 three => reset w1 three; ask r3 one => nothing; session one parking
        opens w2; reset w1 => grant r2 w1; open r3; session one parked""",
    "no worker in the middle of something is rebound": """
        pool max=2; hold r1 s; hold r2 used; ask r3 other bounded=False; busy s; background w1 1; free r1 => nothing
        quiet s => nothing; background w1 0 => reset w1 other; settle; held r3""",
    "no worker in the middle of something is evicted": """
        pool max=2; hold r1 s; hold r2 used; ask r3 other b bounded=False; busy s; background w1 1; free r1 => nothing
        quiet s => nothing; background w1 0 => stop w1 evicted; settle; held r3""",
    "where none matches, the least recently used is evicted and the spawn waits for its exit": """
        pool max=2; use cold; wait 1.0; use warm; ask r1 new b => stop w1 evicted; exit w1 => spawn w3 b; settle
        held r1@w3; counter evicted 1""",
    "only as many workers are evicted as there are waiters for their slots": """
        use a0; use a1; use a2; use a3; ask r1 b0 b; ask r2 b1 b; ask r3 b1 b; stopping w1 w2""",
    "a slot that is coming free anyway is used before another worker is evicted": """
        pool max=2; use one; use two; stop w1; ask r1 new b => nothing; stopping w1""",
    "a freed worker goes to the best waiter it matches": """
        pool max=2; hold r1 a; hold r2 b b; ask r3 b2 b priority=9; ask r4 a2 priority=9; ask r5 a3 priority=9
        free r1; settle; held r4@w1; free r2; settle; held r3@w2; open r5""",
    "a freed worker that matches nobody is replaced for the best waiter": """
        pool max=1; hold r1 a; ask r2 b b priority=5; ask r3 c c priority=6; free r1 => stop w1 evicted
        exit w1 => spawn w2 c; settle; held r3; open r2""",
    "priorities go first and waiting makes up for them": """
        pool max=1 waiting_timeout=1000.0; hold r1 s; ask low t priority=3; wait 5.9; ask high u; wait 0.2; ask later v
        free r1; settle; held high; free high; settle; held low; free low; settle; held later""",
    "an acquire that may not spawn takes what is there or nothing": """
        pool max=2; ask r1 s spawn=False => reject r1 no_worker; workers; use one
        ask r2 one spawn=False => grant r2 w1
        free r2; ask r3 two spawn=False; settle; held r3@w1; ask r4 two b spawn=False => reject r4 saturated
        free r3 => nothing""",
    "an acquire that may not wait never overtakes those who do": """
        pool max=2; use quiet; ask r1 first; ask r2 hasty spawn=False => reject r2 saturated; settle; held r1""",
    "one that takes only room has a worker started and waits for nothing else": """
        pool max=2; hold r1 s1; ask r2 s2 b spawn=room timeout=60 => spawn w2 b; open r2; settle; held r2
        ask r3 s3 c spawn=room timeout=60 => reject r3 saturated""",
    "one that takes only room stops no worker at rest": """
        pool max=1; use s1; ask r1 s2 b spawn=room timeout=60 => reject r1 saturated; session s1 active""",
    "one that takes only room gives way when another takes the worker that was started for it": """
        pool max=1; ask r1 s1 spawn=room priority=3 timeout=60; ask r2 s2 timeout=60; settle; held r2
        error r1 PoolSaturated; spawned 1""",
    "one that takes only room hears that its worker did not start": """
        ask r1 s1 spawn=room timeout=60; fail w1 start; error r1 PoolSaturated its worker did not start""",
    "a worker that was changed at run time goes on with its session, and no other gets it": """
        pool max=1; use s; change w1; hold r1 s; held r1@w1; free r1; ask r2 t => stop w1 evicted; settle
        workers w2""",
    "a worker that was changed counts for nobody when its session has parted from it": """
        pool max=2 session_idle_timeout=10; use s; change w1; wait 11; ask r1 s; settle; held r1@w2""",
    "late news of a changed worker that is gone is passed over": "pool max=1; hold r1 s; exit w1; change w1; free r1",
}

LIMITS = {
    "starting and stopping processes count against max until they are reaped": """
        pool max=2; ask r1 one; ask r2 two; ask r3 three; spawned 2; stop w1 => stop w1 operator
        exit w1 => spawn w3 a""",
    "max_per_profile holds back one profile only": """
        pool max=5 max_per_profile=2; ask r1 a0; ask r2 a1; ask r3 a2; ask r4 a3; spawned 2; hold r5 b b; settle
        stop w1; settle; spawned 4""",
    "max_per_agent evicts within the agent": """
        pool max=5 max_per_agent=2; use h helper:h; hold r1 one; hold r2 two; ask r3 three b => nothing; free r1
        stopping w2; settle; held r2 r3; workers w1 w3 w4""",
    "starts are limited by the bucket and go on when it fills": """
        pool max=20 spawn_burst=3 spawn_rate=2.0; ask r1 s1; ask r2 s2; ask r3 s3; ask r4 s4; ask r5 s5; spawned 3
        next 0.5; wait 0.5; spawned 4; wait 0.5; spawned 5; wait 0.5; spawned 5""",
    "while the bucket is empty a quiet worker is rebound instead": """
        pool max=5 spawn_burst=1 spawn_rate=0.1; use one; ask r1 two; settle; held r1@w1; spawned 1""",
    "an eviction is an event that names the worker and the profile it makes room for": """
        pool max=1; use s; ask r1 t b => stop w1 evicted; event worker_evicted worker=w1 wanted=b|main|d""",
    "no worker is evicted for a start that is not allowed yet": """
        pool max=2 spawn_burst=2 spawn_rate=0.1; use a; use b; ask r1 c b => nothing; wait 9.9 => nothing
        wait 0.2 => stop w1 evicted; settle; held r1""",
    "ordinary requests never hold more than max less the reserve": """
        pool max=3 reserve=1; hold r1 one; hold r2 two; ask r3 three priority=9; settle; open r3; spawned 2
        hold r4 urgent priority=10; open r3""",
    "an idle worker of the reserve is not given to an ordinary request": """
        pool max=2 reserve=1; prewarm a=2; settle; hold r1 one; ask r2 two => nothing; free r1; settle; held r2""",
    "a quiet session of its own waits for the reserve too and in order": """
        pool max=2 reserve=1; use bound priority=10; hold r1 one; ask r2 other; ask r3 bound; open r2 r3; free r1
        settle
        held r2; free r2; settle; held r3""",
    "a second request of a held session takes no further worker from the reserve": """
        pool max=2 reserve=1; hold r1 one; ask r2 one => grant r2 w1""",
    "who lost a start to a privileged request gets another when the reserve allows": """
        pool max=4 reserve=2; use quiet; hold r1 one; ask r2 two; ask r3 quiet; ask r4 vip priority=10; workers w1 w2 w3
        busy quiet; free r3; workers w1 w2 w3 w4""",
    "who lost a start to another profile gets another when the reserve allows": """
        pool max=6 reserve=4; use quiet; hold r1 one; ask r2 two; ask r3 vip priority=10; ask r4 quiet
        ask r5 large a/large priority=10; spawned 4; busy quiet; free r4; spawned 5""",
    "a worker that only the reserve kept from a waiter is given to it when the reserve allows": """
        pool max=4 reserve=2 spawn_burst=3 spawn_rate=0.001; hold r1 vip priority=10; hold r2 vip2 priority=10
        hold r3 one
        ask r4 two; ask r5 vip; free r2; open r4; busy one; free r3; settle; held r4@w2""",
    "a nested run may use the reserve": "pool max=2 reserve=1; hold r1 parent; hold r2 child nested=True priority=3",
    "a nested run fails at once where it would wait for its ancestor": """
        pool max=1; hold r1 parent; ask r2 child nested=True => reject r2 nested_saturated
        ask r3 parent b nested=True => reject r3 nested_saturated""",
    "a nested run waits for a start": "pool max=2; hold r1 parent; ask r2 child nested=True; open r2; settle; held r2",
    "a nested run waits for an eviction": """
        pool max=2; use quiet; hold r1 parent; ask r2 child b nested=True; open r2; settle; held r2""",
    "a nested run goes before everybody else": """
        pool max=2; hold r1 parent; ask r2 before priority=50; ask r3 child nested=True priority=0
        ask r4 child2 nested=True => reject r4 nested_saturated; ready w2 => reset w2 child fresh; reset w2; free r3
        settle
        held r2""",
    "a nested run is refused when what was on its way is lost": """
        pool max=2 breaker_failures=1; hold r1 parent; ask r2 child b nested=True; fail w2 start
        error r2 ProfileBroken""",
    "a lower max stops available workers now and held ones at their turn boundary": """
        hold r1 one; hold r2 two; use cold; use warm; settings max=1 => stop w3 retired, stop w4 retired
        free r1 => stop w1 retired; free r2 => nothing; settle; workers w2""",
    "a lower max stops starting workers and their waiters wait on": """
        pool max=3; hold r1 one; ask r2 two; settings max=1 => stop w2 retired; settle; free r1; settle; held r2""",
    "a higher max is used at once": """
        pool max=1; hold r1 one; ask r2 two; settings max=2 => spawn w2 a; settle; held r2""",
    "a smaller reserve lets ordinary waiters go on": """
        pool max=2 reserve=1; hold r1 one; ask r2 two; settings reserve=0; settle; held r2""",
}

WAITING = {
    "a full list makes room for a higher priority by pushing out the newest of the lowest": """
        pool max=1 waiting_capacity=3; hold r1 s; ask old x priority=3; ask new y priority=3; ask middle z
        ask high t priority=6 => reject new saturated; open old middle high""",
    "a gateway's runs do not count against the capacity": """
        pool max=1 waiting_capacity=1; hold r0 s; ask r1 t bounded=False; ask r2 u bounded=False; ask r3 v; open r3
        ask r4 w => reject r4 saturated""",
    "a full list does not refuse what can be served at once": """
        pool max=2 waiting_capacity=0; prewarm a=2; settle; hold r1 one; free r1; hold r2 two; free r2
        hold r3 three""",
    "a full list takes a request that lets another one go on": """
        pool max=2 waiting_capacity=1; use quiet; ask r1 first; spawned 2; ask r2 second => reset w1 first; settle
        held r1 r2""",
    "a waiter ends by its deadline and the machine asks to be woken for it": """
        pool max=1; hold r1 s; ask r2 late timeout=7.5; next 7.5; wait 8.0 => reject r2 acquire_timeout
        error r2 AcquireTimeout waiting=1 max=1; counter expired 1""",
    "a wait that ended names those that wait for a person, as the status does": """
        pool max=1; hold r1 s; asks s c7; ask r2 late timeout=1.0
        reason r2 the pool is full, and no worker can make room, and 1 session waits for a person (pool approvals)
        wait 1.0; error r2 AcquireTimeout s waits for a person: pool approve -s s c7""",
    "without a deadline a direct acquire waits for waiting_timeout": """
        pool max=1 waiting_timeout=12.0; hold r1 s; ask r2 late; wait 11.9; open r2; wait 0.1
        error r2 AcquireTimeout""",
    "a waiter past its deadline is not granted even if the tick is late": """
        pool max=1; hold r1 s; ask r2 late timeout=1.0; sleep 1.5; free r1; error r2 AcquireTimeout""",
    "what was due is not lost when the stimulus makes no sense": """
        pool max=1; hold r1 s; ask r2 late timeout=1.0; sleep 2.0; ! stop w99; wait 0.0; error r2 AcquireTimeout""",
    "a waiter may expire while its worker is being prepared, and the binding stays": """
        ask r1 s timeout=1.0; ready w1; wait 1.0; error r1 AcquireTimeout; reset w1 => nothing
        ask r2 s => grant r2 w1""",
    "a deadline that has passed already is refused unless a worker is at hand": """
        ask r1 s timeout=0.0 => reject r1 acquire_timeout; workers""",
    "cancelling a granted request gives the hold back": """
        pool max=1; hold r1 s; ask r2 t; cancel r1 => reset w1 t; reset w1 => grant r2 w1; counter releases 1
        counter active 1; cancel nobody => nothing""",
    "a reset that was made for another session grants nobody the worker": """
        ask r1 s; ready w1; ! news WorkerResetDone w1 t t.jsonl: not being reset for session 't'; open r1; reset w1
        held r1
        session s active s.jsonl""",
    "a paused pool grants nothing and forgets nobody": """
        pool max=2; hold r1 held; use quiet; ask r2 prepared; pause; pause; ask r3 held; ask r4 quiet; ask r5 new
        ask r6 new
        ask r7 short timeout=5.0; settle; open r2 r3 r4 r5 r6; free r1; wait 6.0; error r7 AcquireTimeout; resume
        settle
        held r2 r3; free r2; settle; held r3 r4; free r4; settle; held r5 r6""",
    "draining refuses waiters, stops idle workers and lets holds end": """
        pool max=3; hold r1 held; use quiet; hold r2 busy; busy busy; ask r3 late b => stop w2 evicted
        drain => reject r3 pool_closed; free r1 => stop w1 drained; ask r4 more => reject r4 pool_closed
        free r2 => nothing
        quiet busy => stop w3 drained; settle; workers""",
    "draining stops starting workers, and those being prepared when they are done": """
        pool max=2; ask r1 one; ready w1; ask r2 two; drain; stopping w2; reset w1 => stop w1 drained
        error r1 PoolClosed; error r2 PoolClosed""",
    "draining waits for no command in the background": """
        pool max=2; use resting; hold r1 held; background w1 1; background w2 1; drain => stop w1 drained
        free r1 => stop w2 drained""",
    "closing stops every worker, held or not": """
        pool max=3; hold r1 held; use quiet; ask r2 starting; close; stopping w1 w2 w3; error r2 PoolClosed; settle
        workers
        free r1; close => nothing; ! pause: closed; ! resume: closed; next None""",
}


@pytest.mark.parametrize(
    "transcript", [*ORDER.values(), *LIMITS.values(), *WAITING.values()], ids=[*ORDER, *LIMITS, *WAITING]
)
def test_the_machine_decides_as_the_transcript_says(transcript: str) -> None:
    play(transcript)


def test_it_is_known_whose_conversation_a_worker_has() -> None:
    world = play("ask r1 s").world
    assert world.machine.session_of("w1") is None
    world.ready("w1")
    assert world.machine.session_of("w1") == "s"
    assert world.machine.session_of("w2") is None


@pytest.mark.parametrize("limits", [{"max": 1}, {"max": 2}])
def test_a_busy_profile_does_not_starve_the_others_beyond_one_age_step(limits: dict[str, int]) -> None:
    world = World(waiting_timeout=1000.0, **limits)
    for number in range(limits["max"]):
        world.held(f"first{number}", A)
    lonely = world.acquire("b", B, bounded=False)
    for turn in range(20):
        world.pass_time(1.0)
        world.acquire(f"a{turn}", A, bounded=False)
        world.release(next(iter(world.holds)))
        world.run_until_settled()
        if lonely in world.holds:
            break
    assert lonely in world.holds
    assert world.now - 1000.0 <= 3.0 + 2.0


def test_a_full_list_refuses_with_a_hint_when_to_come_again_and_the_pools_figures() -> None:
    error = play("pool max=1 waiting_capacity=2; hold r1 s; ask r2 t; ask r3 u; ask r4 v").world.errors["r4"]
    assert "total=1 idle=0 leased=1 starting=0 stopping=0 waiting=2 max=1" in str(error)
    assert error.details["figures"]["waiting"] == 2
    assert error.retry_after is not None
    assert error.retry_after > 0


def test_every_grant_has_a_higher_generation_and_a_stale_hold_is_refused() -> None:
    world = play("hold r1 s").world
    hold = world.holds["r1"]
    world.release("r1")
    second = world.acquire("s")
    assert world.holds[second].generation > hold.generation
    for stale in (hold, WorkerHold(second, "s", "w1", hold.generation), WorkerHold("nobody", "s", "w1", 1)):
        with pytest.raises(UsageError, match="hold"):
            world.tell(stimuli.Release(stale))
    world.release(second)


def test_a_request_id_in_use_is_refused_without_harm() -> None:
    world = play("pool max=1; hold r1 s; ask r2 t").world
    for request in ("r1", "r2"):
        with pytest.raises(UsageError, match="in use"):
            world.machine.handle(stimuli.Acquire(request=request, session="u", profile=A), world.now)
    world.machine.validate()
    world.release("r1")
    world.run_until_settled()
    assert "r2" in world.holds


@pytest.mark.parametrize(
    ("transcript", "is_granted"),
    [
        ("use other", False),
        ("ask r1 s", False),
        ("use s", True),
        ("use s; busy s", True),
        ("hold r1 s; hold r2 other", True),
        ("pool max=2; use s; hold r1 x; ask r2 y; ask r3 z", False),
        ("pool max=1; hold r1 s; ask r2 other; ask r3 another priority=9", True),
        ("pool max=2 reserve=1; use s; hold r1 other", False),
        ("use s b", False),
        ("use s a/large", False),
        ("hold r1 s; ask r2 s a/large", True),
        ("use s; pause", False),
        ("use s; drain", False),
    ],
)
def test_the_short_way_grants_what_an_ordinary_request_would_get_at_once(transcript: str, *, is_granted: bool) -> None:
    world = play(transcript).world
    twin = copy.deepcopy(world.machine)
    grant = world.machine.take_warm("short", "s", A, world.now)
    request = stimuli.Acquire(request="short", session="s", profile=A, spawn=False)
    decided = [each for each in twin.handle(request, world.now) if isinstance(each, stimuli.Grant)]
    assert ([] if grant is None else [grant]) == decided
    assert (grant is not None) is is_granted
    if grant is not None:
        world.machine.validate()
        assert world.machine.snapshot(world.now) == twin.snapshot(world.now)


def test_the_short_way_gives_way_to_what_is_due() -> None:
    world = play("use s; hold r1 other; ask r2 other b timeout=5").world
    due = world.machine.next_wakeup()
    assert due is not None
    assert world.machine.take_warm("early", "s", A, due - 0.001) is not None
    assert world.machine.take_warm("late", "s", A, due) is None


@pytest.mark.parametrize(
    ("transcript", "is_quiescent"),
    [("", True), ("hold r1 s", False), ("use s; busy s", False), ("use s; background w1 1", False), ("use s", True)],
)
def test_a_session_is_quiescent_without_hold_delivery_and_command(transcript: str, *, is_quiescent: bool) -> None:
    assert play(transcript).world.machine.is_quiescent("s") == is_quiescent


def test_no_worker_is_foretold_that_is_being_brought_to_another_model() -> None:
    world = play("pool max=1; ask r1 s a/small; ready w1").world
    other = make_profile("a", model="large")
    assert not world.machine.has_worker("s", other)
    assert world.acquire("s", other, spawn=False) in world.errors


@pytest.mark.parametrize(
    "changes",
    [
        *({"max": 0}, {"min": 5, "max": 4}, {"reserve": 4, "max": 4}, {"max_pinned": 2, "max": 2}),
        *({"spawn_rate": 0.0}, {"spawn_burst": 0}, {"breaker_failures": 0}),
        *({"ping_interval_idle": Seconds(0)}, {"turn_stall": Seconds(0)}, {"reset_timeout": Seconds(-1)}),
    ],
)
def test_limits_that_contradict_each_other_are_refused_and_change_nothing(changes: dict[str, float]) -> None:
    world = World()
    with pytest.raises(UsageError, match=next(iter(changes))):
        world.tell(stimuli.SettingsChanged(msgspec.structs.replace(world.settings, **changes)))
    assert world.held("s")
    with pytest.raises(UsageError):
        PoolMachine(PoolSettings(**changes), rng=world.machine._state.rng, now=0.0)  # type: ignore[arg-type]
