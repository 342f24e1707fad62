"""What goes wrong with workers, who is charged for it, and who is told: transcripts of the machine."""

from typing import Any

import pytest

from errors import ProfileBroken, ResumeFailed, UsageError, WorkerError
from pool import stimuli
from pool.stimuli import FailureKind
from tests.pool.transcript import play
from tests.pool.world import World, make_profile

A = make_profile("a")
_BROKEN = "pool breaker_window=1e6; ask r0 s timeout=1000.0; " + "fail_start; wait 60.0; " * 4 + "fail_start"
"""Five failed starts in the window."""

STARTS = {
    "a failed start is stopped and tried again after back-off": """
        ask r1 s; fail w1 start => kill w1 failed; exit w1 => nothing; wait 0.5 => spawn w2 a; settle; held r1
        counter exits.start 1""",
    "a process that ends while starting counts as a failed start": """
        ask r1 s; exit w1 => nothing; counter exits.start 1; workers; wait 0.5 => spawn w2 a""",
    "five failed starts break the profile": f"""
        {_BROKEN}; error r0 ProfileBroken; breaker a open; event breaker_opened; ask r1 t; error r1 ProfileBroken""",
    "one profile's failures never block another": f"{_BROKEN}; hold r1 t b",
    "a broken profile still serves from the workers it has": """
        pool breaker_window=1e6 max=3 breaker_failures=1; hold r1 mine; hold r2 other; ask r3 third; fail_start
        error r3 ProfileBroken; ask r4 mine => grant r4 w1; free r2; ask r5 fourth; settle; held r5""",
    "half-open lets one trial through, which closes the breaker when it is ready": f"""
        {_BROKEN}; wait 30.0; breaker a half_open; event breaker_half_open; ask r1 one; ask r2 two; workers w6; ready w6
        breaker a closed; event breaker_closed; settle; held r1 r2""",
    "a trial that is stopped before it is ready is made by another worker": f"""
        {_BROKEN}; wait 30.0; ask r1 one; stop w6; exit w6; workers w7; settle; held r1""",
    "a failed trial opens the breaker again": f"""
        {_BROKEN}; wait 30.0; ask r1 one; fail_start; breaker a open; error r1 ProfileBroken""",
    "a worker that dies before it ever served is charged to the profile": """
        pool breaker_failures=2; ask r1 s; ready w1; exit w1; counter exits.crashed 1; wait 0.5; ready w2; exit w2
        breaker a open""",
    "a worker that has served may crash without being charged to the profile": """
        pool breaker_failures=1; hold r1 s; exit w1; breaker a closed""",
    "a trial stops no healthy worker and waits for no room": """
        pool max=2 breaker_failures=1; ask r1 first; exit w1; use quiet b; hold r2 busy b; wait 30.0
        ask r3 trial => reject r3 profile_broken
        error r3 ProfileBroken a trial needs room, and stops no other worker for it; stop w3; exit w3; ask r4 trial
        settle; held r4""",
    "a start that failed without a reason is tried again": """
        pool max=1; ask r1 one; fail w1 start; exit w1; wait 0.5; settle; held r1""",
    "a start that a signal ended is tried again": """
        pool max=1; ask r1 one; fail w1 start signal=9; exit w1; wait 0.5; settle; held r1""",
    "a refusal is believed of no kind that has worked before": """
        pool max=2; hold r1 one; ask r2 two; fail w2 start exit_code=1; exit w2; wait 0.5; settle; held r2""",
}

_RESUME_FAILS = (
    "pool max=1 breaker_failures=1; know s broken.jsonl; ask r1 s; ready w1; fail w1 resume; exit w1; open r1; ready w2"
)
RESETS = {
    "a failed reset kills the worker and the waiter tries again": """
        pool max=1; use old; ask r1 new => reset w1 new; fail w1 reset => kill w1 failed; open r1; exit w1 => spawn w2 a
        settle; held r1""",
    "two failed resumes fail the session and not the profile": f"""
        {_RESUME_FAILS}; fail w2 resume => kill w2 failed, reject r1 resume_failed; exit w2; breaker a closed
        ask r2 s; error r2 ResumeFailed; event session_failed session=s; hold r3 other""",
    "a failed session that is forgotten begins anew": f"""
        {_RESUME_FAILS}; fail w2 resume; exit w2; forget s; ask r2 s; settle; held r2; session s active s.jsonl""",
    "a successful resume clears the session's record": """
        pool max=1; know s s.jsonl; ask r1 s; ready w1; fail w1 resume; exit w1; wait 1.0; ready w2; reset w2; held r1
        exit w2
        ask r2 s; wait 1.0; ready w3; fail w3 resume; exit w3; wait 1.0; ready w4; reset w4; held r2""",
    "a worker that dies over a transcript charges the session too": """
        pool max=1; know s p.jsonl; ask r1 s; ready w1; exit w1; ready w2; exit w2; error r1 ResumeFailed""",
    "so does one whose death is reported before it is reaped, or that breaks the protocol over it": """
        pool max=1 breaker_failures=1; know s p.jsonl; ask r1 s; ready w1; fail w1 crashed; exit w1; ready w2
        fail w2 protocol => kill w2 failed, reject r1 resume_failed; exit w2; breaker a closed""",
    "one that had served another session may have died of that one": """
        pool max=1; know s p.jsonl; use old; ask r1 s; fail w1 crashed; exit w1; ready w2; fail w2 crashed; exit w2
        wait 1.0; ready w3; reset w3; held r1""",
    "a reset of a new conversation is not charged to the session": """
        pool max=1; ask r1 s; ready w1; fail w1 resume; exit w1; wait 2.0; ready w2; fail w2 resume; exit w2; wait 2.0
        ready w3; opens w3 s; fail w3 resume; exit w3; wait 2.0; settle; held r1""",
    "no other worker opens the transcript while the failed one still lives": """
        pool max=3; ask r1 s; ready w1; fail w1 reset; prewarm a=2; wait 1.0; workers w1 w2 w3; ready w2 => nothing
        ready w3 => nothing; exit w1; settle; held r1""",
    "a refused model fails the request with the worker's words and the worker goes on": """
        use s; ask r1 s a/unheard-of; fail w1 reconcile; error r1 WorkerError failed at reconcile
        ask r2 s => reconcile w1 m; reconciled w1 => grant r2 w1""",
    "a worker without room for a conversation stays, and the next request tries again": """
        pool max=1; use old; ask r1 new; ask r2 new; fail w1 disk_full; error r1 WorkerRefused failed at no_room
        error r2 WorkerRefused; workers w1; ask r3 new => reset w1 new; reset w1 => grant r3 w1""",
    "a profile whose workers never had room is not broken": """
        pool max=1 breaker_failures=1; ask r1 s; ready w1; fail w1 disk_full; error r1 WorkerRefused; ask r2 s
        fail w1 disk_full; error r2 WorkerRefused; breaker a closed; workers w1""",
    "a worker whose program can have no such conversation is replaced and neither profile nor session is charged": """
        pool max=1 breaker_failures=1; use s; use other; ask r1 s; fail w1 unfit; error r1 WorkerRefused; exit w1
        ask r2 s; ready w2; fail w2 unfit; error r2 WorkerRefused; exit w2; breaker a closed
        ask r3 new; ready w3; fail w3 unfit; error r3 WorkerRefused; exit w3; hold r4 s""",
    "a session without room to be resumed can be resumed as often as is needed": """
        pool max=1; use s; use other; ask r1 s; fail w1 disk_full; exit w1; ask r2 s; ready w2; fail w2 disk_full
        exit w2
        ask r3 s; ready w3; fail w3 disk_full; exit w3; error r3 WorkerRefused; hold r4 s""",
}

LOSSES = {
    **{
        f"a worker that is {kind} is stopped and started again even above min": f"""
        pool max=2; hold r1 s; fail w1 {kind} => {stop} w1 failed; exit w1 => spawn w2 a; ready w2; free r1
        counter exits.{kind} 1; ask r2 s => reset w2 s s.jsonl fresh; reset w2 => grant r2 w2"""
        for kind, stop in (("unresponsive", "kill"), ("protocol", "kill"), ("stalled", "stop"))
    },
    "a crashed worker is started again and its session resumes there": """
        hold r1 s; exit w1 => spawn w2 a; ready w2; ask r2 s => reset w2 s s.jsonl fresh""",
    "lost capacity is given up where the pool is full anyway": """
        pool max=2; hold r1 a; hold r2 b; ask r3 c b; exit w1 => spawn w3 b; settle; stop w3; exit w3 => nothing
        workers w2""",
    "news of a worker that never was is refused": """
        ! news WorkerReady w1: no worker; ! news WorkerReady x: no worker; ! news WorkerReady w-1: no worker
        ! news WorkerReady w²: no worker""",
    "answers to questions never asked are refused": """
        use s; ! news WorkerReady w1; ! news WorkerResetDone w1 s None; ! news WorkerReconciled w1
        ! news WorkerFailed w1; wait 0.0""",
}  # fmt: skip


@pytest.mark.parametrize(
    "transcript", [*STARTS.values(), *RESETS.values(), *LOSSES.values()], ids=[*STARTS, *RESETS, *LOSSES]
)
def test_the_machine_answers_failures_as_the_transcript_says(transcript: str) -> None:
    play(transcript)


def test_who_waited_for_a_broken_profile_learns_why_and_when_to_come_again() -> None:
    error = play(_BROKEN.replace("fail_start", "fail_start stderr_tail=not-found")).world.errors["r0"]
    assert isinstance(error, ProfileBroken)
    assert error.stderr_tail == "not-found"
    assert error.retry_after == pytest.approx(30.0)
    assert "stopping=1 waiting=1 max=4" in str(error)


def test_who_waited_for_a_failed_session_learns_its_transcript() -> None:
    error = play(f"{_RESUME_FAILS}; fail w2 resume").world.errors["r1"]
    assert isinstance(error, ResumeFailed)
    assert error.details["transcript"] == "broken.jsonl"


@pytest.mark.parametrize("details", [{"exit_code": 0}, {"exit_code": 2}, {"refused": True}])
def test_a_worker_that_refuses_to_start_is_told_to_all_who_wait_for_its_kind_at_once(details: dict[str, Any]) -> None:
    world = play(
        "pool max=1; ask r1 one timeout=1e9; ask r2 one timeout=1e9; ask r3 two timeout=1e9; ask r4 other b"
    ).world
    world.fail("w1", FailureKind.START, stderr_tail="unknown option", **details)
    assert {request: error.code for request, error in world.errors.items()} == dict.fromkeys(
        ("r1", "r2", "r3"), "worker_start_failed"
    )
    assert {getattr(error, "stderr_tail", "") for error in world.errors.values()} == {"unknown option"}
    world.exit("w1")
    world.run_until_settled()
    assert "r4" in world.holds


def test_a_hold_whose_worker_died_may_be_released_once() -> None:
    world = play("hold r1 s").world
    hold = world.holds["r1"]
    world.exit("w1")
    assert world.release("r1") == []
    counters = world.machine.snapshot(world.now).counters
    assert (counters.releases, counters.lost, counters.active) == (0, 1, 0)
    with pytest.raises(UsageError):
        world.tell(stimuli.Release(hold))


def test_a_request_id_stays_taken_until_its_lost_hold_is_released_or_cancelled() -> None:
    world = play("hold r1 s; exit w1").world
    with pytest.raises(UsageError, match="in use"):
        world.machine.handle(stimuli.Acquire(request="r1", session="s", profile=A), world.now)
    world.cancel("r1")
    with pytest.raises(UsageError, match="not in force"):
        world.tell(stimuli.Release(stimuli.WorkerHold("r1", "s", "w1", 1)))


def test_late_news_of_a_dead_or_stopping_worker_changes_nothing() -> None:
    world = World()
    world.acquire("s")
    world.tell(stimuli.StopWorker("w1"))
    before = world.machine.snapshot(world.now)
    late: list[stimuli.Stimulus] = [
        stimuli.WorkerReady("w1"),
        stimuli.WorkerResetDone("w1", "s", None),
        stimuli.WorkerReconciled("w1"),
        stimuli.WorkerFailed("w1", FailureKind.PROTOCOL, WorkerError("late")),
        stimuli.BackgroundCount("w1", 1),
    ]
    for news in late:
        assert world.tell(news) == []
    assert world.machine.snapshot(world.now) == before
    world.exit("w1")
    for news in [*late, stimuli.ProcessExited("w1", WorkerError("late"))]:
        assert world.tell(news) == []
