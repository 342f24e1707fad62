"""The judges as one table: a made-up history, and the promises that it breaks."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stress.checker import Checker
from stress.facts import DAMAGED_TRANSCRIPT, LeftoverProcesses, ObservedProcess, PromptOccurrences, SupervisorEnded
from tests.stress.story import RULES, Story, broken_by

History = str | Callable[[Story], None]
DIES: dict[str, Any] = {"explains": frozenset({"worker_exited"})}
TIMED_OUT: dict[str, Any] = {"overload": frozenset({"acquire_timeout"})}
SLOW: dict[str, Any] = {"explains": frozenset({"acquire_timeout"})}
BROKEN: dict[str, Any] = {"overload": frozenset({"worker_error"})}
DAMAGED: dict[str, Any] = {"explains": frozenset({DAMAGED_TRANSCRIPT, "worker_exited"})}
EXPIRES = "ask 1 timeout=1.0; wait 1.0; fail 1 acquire_timeout"


def a_good_run(story: Story) -> None:
    story.processes(1, 2, rss=50_000_000, fds=20)
    for number in range(12):
        story.converse(number, session=f"s{number % 3}", worker=f"w{number % 2 + 1}")
    for _ in range(2):
        story.status(1, 2)
    story.end()
    for number in range(12):
        story.add(PromptOccurrences, number=number, own=1, foreign=0)
    story.empty()
    story.add(SupervisorEnded, life=1, code=0, signals=(15,))
    story.add(LeftoverProcesses, life=1, seconds=2.0, pids=())


def growing(*, without_end: bool) -> History:
    def write(story: Story) -> None:
        for second in range(150):
            story.processes(1, rss=100 + second if without_end else min(50, second + 1), fds=9)
        story.end()

    return write


def starting(workers_at: int, pause: float) -> History:
    def write(story: Story) -> None:
        for first in range(0, workers_at, 2):
            story.processes(first + 1, first + 2)
            story.t += pause

    return write


def waiting_in_vain(count: int, late: float = 0.0, *, hit: bool = True, faulty: bool = False) -> History:
    """``count`` of a hundred requests time out."""

    def write(story: Story) -> None:
        if hit:
            story.hit("w1", 60.0, action="suspend")
        for number in range(100):
            if number < count:
                story.ask(number, timeout=0.5)
                story.wait(0.5, late)
                story.fail(number, "acquire_timeout")
            else:
                story.converse(number)
        if faulty:
            story.converse(100, faulty=True)
        story.end()

    return write


def slower(before: float, after: float, calm: float) -> History:
    """400 requests that wait so long, before and after the time at which faults begin."""

    def write(story: Story) -> None:
        for number in range(400):
            story.ask(number)
            story.t += before if number < 200 else after
            story.begin(number)
            story.answer(number)
            story.part(number)
            story.t = calm if number == 199 else story.t
        story.end()

    return write


def pid_taken_by_another(story: Story) -> None:
    story.processes(1, 2)
    story.hit("w1")
    for _ in range(2):
        story.processes(workers=(ObservedProcess(1, 70, "w3"), ObservedProcess(2, 2, "w2")))
        story.wait(15.0)


_ENDS_OF_LIVES = {
    "": ((0, "15,"), (0, "15,15"), (-9, "9,"), (-9, "15,9")),
    "I4": (
        *((0, ","), (-11, ","), (1, "15,"), (-11, "15,"), (-6, "9,")),
        *((-15, "15,"), (-15, "15,15"), (-9, "15,15"), (-15, "9,")),
    ),
}
_FAILS = "ask {0} ada; begin {0}; hit w1; fail {0} worker_exited"
_FAILED_TWICE = f"{_FAILS.format(2)}; {_FAILS.format(3)}"
_STARTED = "RequestStarted number=2 worker=w1"
_ENDED = "SupervisorEnded life=1 code=-9 signals=9,"
_PASSED_OVER = "ask 1 ada; wait 2.0; ask 2; begin 2 w2; wait 2.0; wait 0.0"

# fmt: off
REQUESTS: list[tuple[Any, ...]] = [
    ("a run as it should be", "", a_good_run),
    # I1
    ("no outcome", "I1", "ask 1; begin 1; end"),
    ("an outcome twice", "I1", "converse 1; answer 1"),
    ("an outcome of what was refused", "I1",
     "ask 1 accept=False; RequestRefused number=1 code=acquire_timeout; fail 1 acquire_timeout", TIMED_OUT),
    ("an outcome of what was never asked", "I1", "answer 9 said=9,"),
    ("a turn that begins twice", "I1", "ask 1; begin 1; RequestStarted number=1 worker=w2; answer 1"),
    ("an accepted request that is unknown later", "I1", "ask 1; RequestForgotten number=1"),
    ("a request that is never answered", "I1", "ask 1 accept=False; RequestForgotten number=1; end"),
    ("completed without a beginning", "I1", "ask 1; answer 1"),
    ("an acceptance that is repeated", "",
     "converse 1; RequestAccepted number=1 at=0.0; OutcomeRemembered number=1 reason=completed"),
    ("a faulty worker's request fails in any way, but once", "I1",
     "ask 1 faulty=True; begin 1; fail 1 any; ok; fail 1 any"),
    ("a prompt that stands in no transcript", "I1", "converse 1; PromptOccurrences number=1 own=0 foreign=0"),
    ("a prompt that stands in its transcript twice", "I1", "converse 1; PromptOccurrences number=1 own=2 foreign=0"),
    ("events out of their order", "I1", "DirectViolation what=disorder"),
    ("an outcome that is remembered otherwise", "I1",
     "converse 1; OutcomeRemembered number=1 reason=error code=interrupted"),
    *(
        (f"remembered as {reason} before the outcome", expected,
         f"ask 1; begin 1; OutcomeRemembered number=1 reason={reason}; answer 1", {})
        for reason, expected in (("completed", ""), ("live", ""), ("error", "I1"))
    ),
    ("no outcome yet, heard after the outcome", "", "converse 1; OutcomeRemembered number=1 reason=live"),
    ("a failure that no fault explains", "I1", "ask 1; begin 1; fail 1 internal", DIES),
    ("an expiry is not explained without a fault", "I1", f"wait 50.0; {EXPIRES}", SLOW),
    ("an expiry is explained a while after a fault", "", f"hit w1; wait 50.0; {EXPIRES}", SLOW),
    ("an expiry is explained while a fault lasts", "", f"hit w1 60.0; wait 50.0; {EXPIRES}", SLOW),
    ("an expiry is not explained long after a fault", "I1", f"hit w1 60.0; wait 250.0; {EXPIRES}", SLOW),
    ("an expiry is not explained by a fault that hurts no request", "I1",
     f"hit * 60.0 hurts=False; wait 50.0; {EXPIRES}", SLOW),
    ("an expiry is what an overload brings", "", EXPIRES, TIMED_OUT),
    *(
        (f"{count} of 100 wait in vain, {late:g} s late", expected,
         waiting_in_vain(count, late), {**SLOW, "max_timed_out": 0.05, "min_completed": 0.4})
        for count, late, expected in ((5, 0.0, ""), (6, 0.0, "I1"), (50, 0.6, ""), (51, 0.6, "I1"))
    ),
    *(
        (f"{count} of 100 are refused in overload", expected,
         waiting_in_vain(count, hit=False, faulty=True), {**TIMED_OUT, "min_completed": 0.2})
        for count, expected in ((80, ""), (81, "I1"))
    ),
    ("interrupted by the end of a life", "",
     "ask 1; begin 1; live_again; fail 1 interrupted", {"explains": frozenset({"interrupted"})}),
    # I2
    ("a word of another session in an answer", "I2", "converse 1 ada; ask 2 bob; begin 2; answer 2 said=2,1"),
    ("an answer to another session", "I2", "ask 1 ada; begin 1; answer 1 session=bob"),
    ("a word that was never given", "I2", "ask 1 ada; begin 1; answer 1 strange=n0000001xffffffff,"),
    ("an answer without its own word", "I2", "ask 1 ada; begin 1; answer 1 said=,"),
    ("a session that has lost its last turn", "I2", "converse 1 ada; ask 2 ada; begin 2; answer 2 said=2,"),
    ("a prompt in the transcript of another session", "I2", "converse 1; PromptOccurrences number=1 own=1 foreign=1"),
    ("what was said more than three turns ago", "",
     f"converse 1 ada; {_FAILED_TWICE}; {_FAILS.format(4)}; ask 5 ada; begin 5; answer 5 said=5,", DIES),
    # I5
    ("priorities after 10 s of waiting", "", "ask 1 priority=5; wait 10.0; ask 2 priority=10; begin 2; wait 2.0"),
    ("priorities after 18 s of waiting", "I5", "ask 1 priority=5; wait 18.0; ask 2 priority=10; begin 2; wait 2.0"),
    ("overtaken by another profile", "", "ask 1; wait 2.0; ask 2 profile=main/p1; begin 2 w2; wait 2.0"),
    ("overtaken while its session has a worker", "",
     "PoolEvent what=session_bound worker=w1 session=ada; ask 1 ada; wait 2.0; ask 2; begin 2 w2; wait 2.0"),
    ("overtaken while its session is busy", "", "ask 0 ada; begin 0; ask 1 ada; wait 2.0; ask 2; begin 2 w2; wait 2.0"),
    ("overtaken while its transcript is held", "",
     "ask 1; wait 2.0; ask 2; begin 2 w2; status waits=s1 state=blocked; wait 2.0"),
    ("overtaken while its worker is suspended", "", f"converse 0 ada; hit w1 20.0 action=suspend; {_PASSED_OVER}"),
    ("overtaken long after its worker was suspended", "I5",
     f"converse 0 ada; hit w1 20.0 action=suspend; wait 111.0; {_PASSED_OVER}"),
    ("overtaken after a fault of the life before", "I5",
     f"converse 0 ada w1; live_again; wait 6.0; hit w1 20.0; {_PASSED_OVER}"),
    ("turns of a session in the order of their priority", "",
     "ask 1 ada; ask 2 ada; ask 3 ada priority=8; begin 3; answer 3; begin 1"),
    ("two turns of a session at once", "I5", "ask 1 ada; ask 2 ada; ask 3 ada priority=8; begin 1; begin 2 w2"),
    ("a turn of a session before an earlier one", "I5", "ask 1 ada; ask 2 ada; begin 2"),
    ("accepted a moment after the other was served", "",
     "ask 1 priority=3; ask 2 priority=5 shift=0.021; begin 1; wait 9.0; begin 2 w2"),
    ("accepted a moment before the other was served", "I5",
     "ask 1 priority=3; ask 2 priority=5 shift=0.019; begin 1; wait 9.0; begin 2 w2"),
    ("accepted an hour ago by a clock that is right", "I5", "ask 1 ada; ask 2 ada shift=-3600.0; begin 1"),
    ("accepted an hour ago by a clock that was set", "", "ask 1 ada; set_clock 30.0; ask 2 ada shift=-3600.0; begin 1"),
    # I6
    ("an expiry in time, and another 0.1 s late", "I6",
     "ask 1 timeout=1.0; wait 1.0; expire 1; ok; ask 2 timeout=1.0; wait 1.1; expire 2", TIMED_OUT),
    ("an expiry as late as the machine", "", "ask 1 timeout=1.0; wait 1.2 0.3; expire 1", TIMED_OUT),
    ("served 0.2 s after its deadline", "", "ask 1 timeout=1.0; wait 1.2; begin 1; answer 1"),
    ("served 0.5 s after its deadline", "I6", "ask 1 timeout=1.0; wait 1.5; begin 1; answer 1"),
    ("served 0.5 s after its deadline by a late machine", "", "ask 1 timeout=1.0; wait 1.5 0.4; begin 1; answer 1"),
    ("served by the next life after its deadline", "", "ask 1 timeout=1.0; live_again; wait 3.0; begin 1; answer 1"),
    ("a waiter beside an idle worker, seen twice", "I6", "status 1 waits=s; ok; wait 1.0; status 1 waits=s"),
    ("a waiter for the worker of its session", "",
     "status 1 waits=s state=blocked; wait 1.0; status 1 waits=s state=blocked"),
    ("a waiter whose worker is prepared", "",
     "status 1 waits=s state=preparing; wait 1.0; status 1 waits=s state=preparing"),
    ("a waiter beside a worker that has served in between", "", "status 1 waits=s; status 1 waits=s turns=2"),
    ("an expiry an hour late by a clock that was set", "",
     "ask 1; set_clock 30.0; wait 5.0; fail 1 acquire_timeout shift=3600.0", TIMED_OUT),
    ("an expiry an hour late by a clock that was set for a moment", "",
     "ask 1; set_clock 0.5; wait 5.0; fail 1 acquire_timeout shift=3600.0", TIMED_OUT),
    ("an expiry an hour late by a clock that was right again", "I6",
     "set_clock 0.5; wait 10.0; ask 1; wait 5.0; fail 1 acquire_timeout shift=3600.0", TIMED_OUT),
    # I8
    *(
        (f"{taking} in mid-turn", "I8",
         f"ask 1 ada; begin 1; PoolEvent what={taking} worker=w1 session=ada why=evicted; wait 0.5; answer 1", {})
        for taking in ("worker_evicted", "session_parked")
    ),
    ("evicted, and its turn fails at once", "I8 I12",
     "hit w2; ask 1 turn=1.0; begin 1; PoolEvent what=worker_evicted worker=w1; wait 0.05; fail 1 worker_exited",
     DIES),
    *(
        (f"a turn that ends itself: {why}", "",
         f"ask 1 ada turn=0.3 {asked}; begin 1; {steps}; part 1; fail 1 worker_error", BROKEN)
        for why, asked, steps in (
            ("its time is up", "timeout=0.1", "wait 0.15"),
            ("its worker is hit", "", "hit w1; wait 0.15"),
            ("all are hit", "", "hit *; wait 0.15"),
            ("it is faulty", "faulty=True", "wait 0.15"),
            ("it is over", "", "wait 0.3"),
        )
    ),
    ("a worker that goes on while the outcome is on its way", "",
     "ask 1 ada; begin 1; wait 0.1; part 1; answer 1; wait 2.0"),
    ("a turn of an hour by a clock that was set", "",
     "ask 1; begin 1; wait 0.1; part 1; set_clock 30.0; fail 1 acquire_timeout shift=3600.0", TIMED_OUT),
]

POOL: list[tuple[Any, ...]] = [
    # I3, I4, I7, I11
    ("one worker too many", "I3", "processes 1 2; ok; processes 1 2 3"),
    ("a process that outlives its supervisor", "I4",
     "SupervisorEnded life=1 code=-9 signals=9,; LeftoverProcesses life=1 seconds=2.0 pids=7,"),
    *(
        (f"ended with {code} after signals {signals}", expected,
         f"SupervisorEnded life=1 code={code} signals={signals}", {})
        for expected, ends in _ENDS_OF_LIVES.items()
        for code, signals in ends
    ),
    ("a zombie for more than a second", "I7",
     "processes 1 zombies=7,; wait 0.9; processes 1 zombies=7,; ok; wait 0.2; processes 1 zombies=7,"),
    ("too large", "I7", "processes 1 rss=100; ok; processes 1 rss=500; processes 1 rss=600", {"rss_limit": 400}),
    ("too large only at the end", "I7", "processes 1 rss=100; empty rss=400; ok; empty rss=500", {"rss_limit": 400}),
    ("flat after the warm-up", "", growing(without_end=False), {"rss_growth": 1.25}),
    ("growing after the warm-up", "I7", growing(without_end=True), {"rss_growth": 1.25}),
    *((f"{left} left of a drained pool", "I7", f"empty {left}", {}) for left in ("fds=40", "workers=1", "zombies=1")),
    ("a signal to a stranger", "I11", "ReusedPid pid=7 signalled=False; ok; ReusedPid pid=7 signalled=True"),
    # I9
    ("a killed worker that is never replaced", "I9",
     "processes 1 2; hit w1; processes 2; wait 5.0; processes 2; ok; wait 10.0; processes 2"),
    ("the same, seen once more after its death", "I9",
     "processes 1 2; hit w1; processes 1 2; processes 2; wait 15.0; processes 2"),
    ("no worker is owed after a supervisor's end", "",
     "processes 1 2; live_again; hit w3; processes 4 life=2; wait 15.0; processes 4 life=2"),
    ("a new worker with the pid of the killed one", "", pid_taken_by_another),
    ("more starts than the bucket has", "I9", starting(12, 0.0)),
    ("starts as the bucket allows", "", starting(24, 0.52)),
    ("workers that were there from the beginning", "", "processes 1..20; processes 1..21", {"max_workers": 40}),
    ("twelve at once after the beginning", "I9", "processes 1..20; processes 1..32", {"max_workers": 40}),
    ("24 starts in 4 s that were not watched", "", "processes; wait 4.0; processes 1..24", {"max_workers": 40}),
    ("27 starts in 4 s that were not watched", "I9", "processes; wait 4.0; processes 1..27", {"max_workers": 40}),
    # I10
    ("status knows a worker that is gone, twice", "I10",
     "status 1 2 before=1, after=1,; ok; status 1 2 before=1, after=1,"),
    ("status does not know a worker, twice", "I10", "status 1 before=1,2 after=1,2; ok; status 1 before=1,2 after=1,2"),
    ("status with another limit", "I10", "status 1 max=3"),
    ("a grant that is neither released nor in force", "I10", "status 1 grants=4"),
    # I12
    ("a failure on the worker that was hit", "", "ask 1; begin 1; hit w1; fail 1 worker_exited", DIES),
    ("a failure on a neighbour of the worker that was hit", "I12",
     "ask 1; begin 1; hit w2; fail 1 worker_exited", DIES),
    *(
        (f"all were hit, {what}", expected,
         f"hit * 2.0; {spawned}wait {seconds}; ask 1; begin 1; fail 1 worker_exited", DIES)
        for what, spawned, seconds, expected in (
            ("just now", "", 2.0, ""),
            ("4 s ago", "", 6.0, ""),
            ("20 s ago", "", 22.0, "I12"),
            ("20 s ago, when this worker began", "PoolEvent what=worker_spawned worker=w1; ", 22.0, ""),
        )
    ),
    ("waiting a little longer under faults", "", slower(0.0, 0.2, 20.0), {"compares_waits": True, "calm": 20.0}),
    ("waiting much longer under faults", "I12", slower(0.0, 3.0, 20.0), {"compares_waits": True, "calm": 20.0}),
    ("waiting before any fault too", "", slower(0.4, 4.0, 90.0), {"compares_waits": True, "calm": 90.0}),
    ("a front end that hears late", "I12", "OutcomeReceived front_end=1 seconds=5.0", {"max_delivery_delay": 2.0}),
    ("a front end that hears late where that is not judged", "", "OutcomeReceived front_end=1 seconds=5.0"),
    # damaged transcripts: I1 and I12
    ("damaged by a kill long ago", "",
     f"converse 1 ada; hit w1; wait 500.0; ask 2 ada; fail 2 {DAMAGED_TRANSCRIPT}", DAMAGED),
    ("damaged, and a fault was near others only", "I1 I12",
     f"converse 1 ada w1; converse 2 grace w2; hit w2; ask 3 ada; fail 3 {DAMAGED_TRANSCRIPT}", DAMAGED),
    *(
        (f"damaged {what}", expected, f"{steps}; ask 9 ada; begin 9 w3; fail 9 {DAMAGED_TRANSCRIPT}", DAMAGED)
        for what, expected, steps in (
            ("by the end of the life that had it", "", "converse 1 ada; live_again 0; wait 6.0"),
            ("after the end of a life that had it not", "I1 I12", "live_again 0; wait 6.0"),
            ("with a worker named as one that was hit in the life before", "I1 I12",
             "hit w1; live_again 0; wait 6.0; converse 1 ada w1"),
            ("while all are hit", "", "hit * 4.0; wait 1.0; converse 1 ada"),
            ("after all were hit", "I1 I12", "hit * 0.5; wait 1.0; converse 1 ada"),
            ("by a kill", "", "converse 1 ada w1; hit w1"),
            ("by a kill, but read since", "I1 I12", "converse 1 ada w1; hit w1; converse 2 ada w2"),
            ("by a kill, and written to since", "",
             f"ask 1 ada; begin 1; hit w1 0.1; wait 0.2; answer 1; ask 2 ada; {_STARTED}; answer 2; part 2"),
            ("by the end of a life that is heard of late", "",
             f"ask 1 ada; {_ENDED}; begin 1; answer 1; SupervisorStarted life=2 supervisor=101"),
        )
    ),
]
# fmt: on


@pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in (*REQUESTS, *POOL)])
def test_a_history_breaks_exactly_these_promises(row: tuple[Any, ...]) -> None:
    _, expected, history, *rules = row
    assert broken_by(history, **(rules[0] if rules else {})) == expected


LATE = {
    "an outcome long after its worker was taken": ("I8",
     "ask 1 ada; begin 1; wait 0.1; part 1; skip 0.4; answer 1", 0.4),
    "a zombie for longer than a second": ("I7",
     "processes 1 zombies=9,; wait 0.8; skip 0.5; processes 1 zombies=9,; processes 1", 1.4),
    "a zombie that is seen before the delay is known": ("I7",
     "processes 1 zombies=9,; wait 1.1; processes 1 zombies=9,; wait 0.7; processes 1", 1.9),
    "a turn that is served late": ("I5",
     "ask 1; wait 2.0; ask 2; begin 2; wait 1.0; wait 1.0; wait 1.0; begin 1 w2", 3.1),
    "workers that were allowed one by one and came at once": ("I9",
     "; ".join(f"processes {first} {first + 1}" for first in range(1, 12, 2)), 0.5),
    "an expiry that is late": ("I6", "ask 1 timeout=1.0; skip 1.3; expire 1", 0.3),
}  # fmt: skip


@pytest.mark.parametrize(("invariant", "script", "late"), LATE.values(), ids=LATE)
def test_a_delay_that_is_known_later_excuses_what_it_made_late(invariant: str, script: str, late: float) -> None:
    assert broken_by(f"{script}; skip 0.5; MachineDelay seconds={late}; wait 10.0", **TIMED_OUT) == ""
    assert broken_by(f"{script}; skip 0.5; MachineDelay seconds=0.0; wait 10.0", **TIMED_OUT) == invariant


@pytest.mark.parametrize("script", ["MachineDelay seconds=1.0; wait 3.0; {}", "{}; wait 2.5; MachineDelay seconds=1.0"])
def test_a_delay_of_another_time_excuses_nothing(script: str) -> None:
    assert broken_by(script.format(LATE["an expiry that is late"][1]), **TIMED_OUT) == "I6"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("ask 1; begin 1; end", "begun by w1"),
        ("ask 1; wait 2.0; ask 2; begin 2; wait 2.0", "request 2 was served before 1, whose turn it was"),
    ],
)
def test_a_violation_names_who_is_concerned_and_comes_with_its_history(script: str, what: str) -> None:
    (violation,) = Story(script).violations()
    assert what in violation.what
    assert {"RequestAsked", "RequestAccepted", "RequestStarted"} <= {type(fact).__name__ for fact in violation.history}
    assert msgspec.json.decode(msgspec.json.encode(violation), type=type(violation)) == violation


def test_what_was_completed_long_ago_stands_in_its_transcript_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stress.checker.base._MAX_ENDED", 50)
    story = Story("; ".join(f"ask {number}; begin {number}; answer {number}" for number in range(150)))
    for number in (0, 1):
        story.add(PromptOccurrences, number=number, own=number, foreign=0)
    (violation,) = story.violations()
    assert violation.what == "request 0 was completed and stands in no transcript"


def test_files_that_may_not_be_counted_are_said_to_be_uncounted() -> None:
    checker = Checker(RULES)
    for fact in Story("empty fds=None fds_before=None").facts:
        checker.observe(fact)
    checker.finish()
    assert checker.violations == []
    (note,) = [verdict.note for verdict in checker.verdicts() if verdict.invariant == "I7"]
    assert "cannot be counted" in note


def test_a_supervisor_that_stays_too_large_is_reported_once() -> None:
    story = Story("processes 1 rss=100; processes 1 rss=500; processes 1 rss=600")
    assert len(story.violations(rss_limit=400)) == 1
