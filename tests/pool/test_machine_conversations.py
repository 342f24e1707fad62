"""Workers whose conversation no other worker can go on with, and those that keep theirs: transcripts of the machine."""

import pytest

from tests.pool.transcript import play

LOST = {
    "a worker is evicted last whose conversation would be lost, the least recently used of these first": """
        pool max=4; forgets x; use s1 x:a; use s2 x:b; use s3 c; use s4 d
        ask r1 n1 e => stop w3 evicted; ask r2 n2 f => stop w4 evicted; ask r3 n3 g => stop w1 evicted""",
    "one in which nothing was said has nothing to lose": """
        pool max=2; forgets x; hold r1 s1 x:a; free r1 0; use s2 b; ask r2 new c => stop w1 evicted""",
    "nor has one that has been given another conversation since": """
        pool max=2; forgets x; use s1 x:a; use s2 b; hold r1 s3 x:a; held r1@w1; free r1 0; use s2 b
        ask r2 new d => stop w1 evicted""",
    "what is learned later counts, also of an agent without a worker now": """
        pool max=2; use s1 x:a; forgets x; use s2 b; ask r1 new c => stop w2 evicted; settle; free r1
        forgets x False; ask r2 newer d => stop w1 evicted""",
    "where the limit is lowered the others stop first": """
        pool max=3; forgets x; use s1 x:a; use s2 b; use s3 c; settings max=2; stopping w2""",
}


@pytest.mark.parametrize("transcript", LOST.values(), ids=LOST)
def test_a_conversation_that_would_be_lost_keeps_its_worker_longest(transcript: str) -> None:
    play(transcript)


KEPT = {
    "a session that is pinned keeps its worker, whoever waits and however long": """
        pool max=2 idle_timeout=10.0 session_idle_timeout=20.0; use s pin:a; wait 1000.0; session s active
        hold r1 other b; ask r2 third b timeout=5.0 => nothing; ask r3 fourth pin:a => reject r3 saturated
        wait 6.0; error r2 AcquireTimeout; workers w1 w2; use s pin:a; workers w1 w2""",
    "no other session is given it": """
        pool max=3; use s pin:a; ask r1 t pin:a => spawn w2 pin:a; settle; held r1@w2""",
    "all workers but one can be kept so, and the next session is told what to do": """
        pool max=3; use s pin:a; use t pin:b; ask r1 u pin:a => reject r1 saturated
        error r1 PoolSaturated `pool sessions delete KEY`, raise pool.max; error r1 PoolSaturated : s, t
        use v b; use w b; use s pin:a; use t pin:b""",
    "of requests that come together no more are taken in than find a place": """
        pool max=3; ask r1 s pin:a; ask r2 t pin:a; ask r3 s pin:a; ask r4 u pin:a => reject r4 saturated
        settle; held r1 r2 r3""",
    "what was taken in and has gone leaves its place": """
        pool max=2; ask r1 s pin:a; cancel r1; ask r2 t pin:a => nothing; settle; held r2; ask r3 u pin:a spawn=False
        error r3 PoolSaturated 1 session keeps a worker (resume""",
    "a session that ends, or whose worker dies, makes room": """
        pool max=2; use s pin:a; forget s; use t pin:a; ask r1 s pin:a => reject r1 saturated
        exit w1; hold r2 s pin:a; ask r3 t pin:a => reject r3 saturated""",
    "a pool of one worker keeps none": """
        pool max=1; ask r1 s pin:a => reject r1 saturated; use t b
        error r1 PoolSaturated no session can keep a worker (resume = "pin"): the only one of pool.max = 1""",
    "the limits of the agent and of the profile hold as well": """
        pool max=9 max_per_agent=2 max_per_profile=1; use s pin:a; ask r1 t pin:a => reject r1 saturated
        use u pin:b; ask r2 v pin:c => reject r2 saturated""",
    "one worker is left besides those that background commands keep": """
        pool max=3; use s pin:a; use t pin:b; use u c; background w3 1
        ask r1 v d => stop w3 unpinned; settle; held r1""",
    "commands of its own make it no other worker": """
        pool max=2; use s pin:a; background w1 1; use t b; ask r1 u c => stop w2 evicted; background w1 0; settle
        held r1; use s pin:a; workers w1 w3""",
    "it retires at a turn boundary like any other": """
        pool max=3 max_turns=2; use s pin:a; hold r1 s pin:a; free r1; settle; session s parked
        workers w2""",
    "new settings of its agent end it when its turn is over": """
        pool max=3; hold r1 s pin:a; current b => nothing; free r1 => stop w1 retired""",
    "its session can go on with other settings, on another worker": """
        pool max=3; use s pin:a; ask r1 s pin:b => stop w1 retired; settle; held r1@w2""",
    "where the limit is lowered, the one used longest ago is a worker like others again": """
        pool max=3; use s pin:a; use t pin:a; use s pin:a; settings max=2; workers w1 w2; hold r1 t pin:a; held r1@w2
        free r1; ask r2 u b => stop w2 evicted; settle; held r2; use s pin:a""",
    "while there are too many workers, those go that keep no conversation": """
        pool max=3; use s pin:a; hold r1 t b; hold r2 u c; settings max=2 => nothing; use s pin:a
        free r1 => stop w2 retired; exit w2; free r2; workers w1 w3""",
    "a drained pool stops it": "pool max=3; use s pin:a; drain => stop w1 drained",
    "it is idle for no prewarming": "pool max=3; use s pin:a; prewarm a=1 => spawn w2 a",
}


@pytest.mark.parametrize("transcript", KEPT.values(), ids=KEPT)
def test_a_worker_keeps_its_conversation_where_the_agent_is_pinned(transcript: str) -> None:
    play(transcript)


def test_why_such_a_worker_serves_no_other_session_is_explained() -> None:
    world = play("pool max=3; use s pin:a; use t pin:a").world
    [own, other] = world.machine.explain("s").workers
    assert (own.level, own.difference) == ("bound", "")
    assert (other.level, other.difference) == ("none", 'resume: it keeps the conversation of its session ("pin")')
