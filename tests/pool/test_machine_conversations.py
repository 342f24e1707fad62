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
