"""Health of a worker as transcripts: what is observed at which second, and what is decided."""

import pytest

from pool.health import Health, HealthDecision, Observation
from pool.settings import PoolSettings
from wire.units import Seconds

SETTINGS = PoolSettings(
    ping_interval_idle=Seconds(15),
    ping_interval_busy=Seconds(30),
    ping_timeout=Seconds(10),
    ping_failures=3,
    turn_stall=Seconds(600),
)
TRANSCRIPTS = {
    "an idle worker is pinged every idle interval": """
        next 15; 14.9 idle fine; 15 idle ping; 15.1 answered; 29.9 idle fine; 30 idle ping""",
    "a worker in a turn is pinged every busy interval": "15 turn1 ping; 15 answered; 44.9 turn2 fine; 45 turn3 ping",
    "three unanswered pings in a row are the end": """
        15 idle ping; 25 failed; 25 idle ping; 35 failed; 35 idle ping; 45 failed; 45 idle unresponsive""",
    "an answered ping forgives the unanswered ones before it": """
        15 idle ping; 25 failed; 25 idle ping; 35 failed; 35 idle ping; 35.1 answered; 36 idle fine; 50.1 idle ping
        60 failed; 60.1 idle ping; 70 failed; 70.1 idle ping; 71 answered; 72 idle fine""",
    "a ping whose answer we held back ourselves counts neither way": "; ".join(
        f"{now} idle ping; {now} inconclusive" for now in range(15, 90, 15)
    ),
    "no second ping goes out while one is unanswered": "15 idle ping; 24 idle fine",
    "a worker whose output we do not read is not asked": "15 turn1,backpressured fine; next 45; 45 turn1 ping",
    "a silent turn is aborted, then its worker fails": "0 turn5 fine; 600 turn5 abort_turn; 610 turn5 stalled",
    "a turn that ends when aborted is forgiven": """
        0 turn5 fine; 600 turn5 abort_turn; 601 idle ping; 601 answered; 602 turn6 fine; 1201 turn6 ping; 1202 answered
        1202 turn6 abort_turn""",
    "the stall clock stands while a person is awaited": """
        0 turn5 fine; 500 turn5,awaits_person ping; 500 answered; 1000 turn5 ping; 1000 answered
        1100 turn5 abort_turn""",
    "the stall clock stands while the output is not read": """
        0 turn5 fine; 500 turn5,backpressured fine; 1000 turn5 ping; 1000 answered; 1100 turn5 abort_turn""",
    "every event restarts the stall clock": """
        0 turn0 fine; 500 turn1 ping; 500 answered; 1000 turn2 ping; 1000 answered; 1599 turn2 ping""",
    "an idle worker never stalls": "3600 idle ping; 3600 answered; 7200 idle ping",
}


@pytest.mark.parametrize("transcript", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_health_decides_as_the_transcript_says(transcript: str) -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    for step in transcript.replace("\n", ";").split(";"):
        match step.split():
            case [now, "answered"]:
                health.ping_answered(float(now))
                assert health.last_ping == float(now)
            case [_, "failed"]:
                health.ping_failed()
            case [_, "inconclusive"]:
                health.ping_inconclusive()
            case [now, seen, decision]:
                name, *facts = seen.split(",")
                events = int(name.removeprefix("turn")) if name != "idle" else 0
                seen_now = Observation(events=events, in_turn=name != "idle", **dict.fromkeys(facts, True))
                assert health.check(seen_now, float(now)) is HealthDecision[decision.upper()], step
            case ["next", at]:
                assert health.next_check() == float(at)


def test_a_turn_that_begins_right_after_a_look_is_found_silent_within_twice_the_limit() -> None:
    settings = PoolSettings(turn_stall=Seconds(2), ping_interval_idle=Seconds(15))
    health = Health(lambda: settings, now=0.0)
    assert health.check(Observation(events=0, in_turn=False), health.next_check()) is HealthDecision.FINE
    began = health.next_check() - 2 + 0.001
    while (now := health.next_check()) < began + 10:
        if health.check(Observation(events=1, in_turn=True), now) is HealthDecision.ABORT_TURN:
            break
    assert 2 <= now - began <= 4
