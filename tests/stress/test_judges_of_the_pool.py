"""Judges of processes and workers (I3, I4, I7 to I12): each finds what it is for in a made-up history."""

from typing import Any

import pytest

from stress.checker import Checker
from stress.facts import (
    FaultInjected,
    LeftoverProcesses,
    ObservedProcess,
    OutcomeReceived,
    PoolEvent,
    ReusedPid,
    SupervisorEnded,
    SupervisorStarted,
)
from tests.stress.story import RULES, Story, broken_by

DIES = frozenset({"worker_exited"})


# --- I3, I4, I7, I11 --------------------------------------------------------------------------------------------------


def test_one_worker_too_many_is_counted() -> None:
    story = Story()
    story.processes(1, 2)
    assert story.violations() == []
    story.processes(1, 2, 3)
    assert broken_by(story) == ["I3"]


def test_a_process_that_outlives_its_supervisor_is_found() -> None:
    story = Story()
    story.tell(SupervisorEnded, life=1, code=-9, signals=(9,))
    story.tell(LeftoverProcesses, life=1, seconds=2.0, pids=(7,))
    assert broken_by(story) == ["I4"]


@pytest.mark.parametrize(
    ("code", "signals"),
    [
        (0, ()),
        (-11, ()),
        (1, (15,)),
        (-11, (15,)),
        (-6, (9,)),
        (-15, (15,)),
        (-15, (15, 15)),
        (-9, (15, 15)),
        (-15, (9,)),
    ],
)
def test_a_supervisor_ends_only_when_it_is_told_to_and_in_good_order(code: int, signals: tuple[int, ...]) -> None:
    story = Story()
    story.tell(SupervisorEnded, life=1, code=code, signals=signals)
    assert broken_by(story) == ["I4"]


@pytest.mark.parametrize(("code", "signals"), [(0, (15,)), (0, (15, 15)), (-9, (9,)), (-9, (15, 9))])
def test_a_supervisor_that_is_told_to_end_may_end_well_or_by_the_signal_that_leaves_no_other_way(
    code: int, signals: tuple[int, ...]
) -> None:
    story = Story()
    story.tell(SupervisorEnded, life=1, code=code, signals=signals)
    assert story.violations() == []


def test_files_that_nobody_may_count_are_said_to_be_uncounted() -> None:
    story = Story()
    story.empty(fds=None, fds_before=None)
    checker = Checker(RULES)
    for fact in story.facts:
        checker.observe(fact)
    checker.finish()
    assert checker.violations == []
    (note,) = [verdict.note for verdict in checker.verdicts() if verdict.invariant == "I7"]
    assert "cannot be counted" in note


def test_a_zombie_may_be_there_for_a_second_and_no_longer() -> None:
    story = Story()
    story.processes(1, zombies=(7,))
    story.pass_time(0.9)
    story.processes(1, zombies=(7,))
    assert story.violations() == []
    story.pass_time(0.2)
    story.processes(1, zombies=(7,))
    assert broken_by(story) == ["I7"]


def test_a_supervisor_that_becomes_too_large_is_noticed_once() -> None:
    story = Story()
    for size in (100, 500, 600):
        story.processes(1, rss=size)
    assert len(story.violations(rss_limit=400)) == 1


def test_a_supervisor_that_is_too_large_only_when_all_is_done_is_noticed_too() -> None:
    story = Story()
    story.processes(1, rss=100)
    story.empty(rss=400)
    assert story.violations(rss_limit=400) == []
    story.empty(rss=500)
    assert broken_by(story, rss_limit=400) == ["I7"]


def test_growth_after_the_warm_up_is_no_steady_state() -> None:
    flat, growing = Story(), Story()
    for second in range(150):
        flat.processes(1, rss=min(50, second + 1), fds=9)
        growing.processes(1, rss=100 + second, fds=9)
    flat.end()
    growing.end()
    assert flat.violations(rss_growth=1.25) == []
    assert broken_by(growing, rss_growth=1.25) == ["I7"]


@pytest.mark.parametrize("left", [{"fds": 40}, {"workers": 1}, {"zombies": 1}], ids=lambda left: next(iter(left)))
def test_what_is_left_of_a_drained_pool_is_counted(left: dict[str, Any]) -> None:
    story = Story()
    story.empty(**left)
    assert broken_by(story) == ["I7"]


def test_a_signal_that_met_a_stranger_is_no_small_thing() -> None:
    story = Story()
    story.tell(ReusedPid, pid=7, signalled=False)
    assert story.violations() == []
    story.tell(ReusedPid, pid=7, signalled=True)
    assert broken_by(story) == ["I11"]


# --- I8, I9, I10, I12 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taking", ["worker_evicted", "session_parked"])
def test_a_worker_that_is_taken_away_in_mid_turn_is_noticed(taking: str) -> None:
    story = Story()
    story.ask(1, "ada")
    story.begin(1)
    story.tell(PoolEvent, what=taking, worker="w1", session="ada", why="evicted")
    story.pass_time(0.5)
    story.answer(1)
    (violation,) = story.violations()
    assert violation.invariant == "I8"


def test_a_worker_that_is_taken_from_a_turn_which_fails_for_it_at_once_is_noticed_too() -> None:
    story = Story()
    story.tell(FaultInjected, fault="F1", action="kill", worker="w2", pid=2)
    story.ask(1, "ada", turn=0.3)
    story.begin(1)
    story.pass_time(0.1)
    story.tell(PoolEvent, what="worker_evicted", worker="w1")
    story.t += 0.05
    story.fail(1, "worker_exited")
    (taken, felt) = story.violations(explains=DIES)
    assert (taken.invariant, felt.invariant) == ("I8", "I12")


@pytest.mark.parametrize("excuse", ["its time is up", "its worker is hit", "all are hit", "faulty", "its turn is over"])
def test_a_turn_that_fails_by_itself_was_not_cut_off(excuse: str) -> None:
    story = Story()
    story.ask(1, "ada", turn=0.3, faulty=excuse == "faulty", timeout=0.1 if excuse == "its time is up" else 10.0)
    story.begin(1)
    if "hit" in excuse:
        story.tell(FaultInjected, fault="F4", action="no_disk", worker="w1" if excuse == "its worker is hit" else "*")
    story.pass_time(0.3 if excuse == "its turn is over" else 0.15)
    story.part(1)
    story.fail(1, "worker_error")
    assert story.violations(overload=frozenset({"worker_error"})) == []


def test_a_worker_may_go_to_the_next_session_while_the_outcome_is_being_told() -> None:
    story = Story()
    story.ask(1, "ada")
    story.begin(1)
    story.pass_time(0.1)
    story.part(1)
    story.answer(1)
    story.pass_time(2.0)
    assert story.violations() == []


def test_a_killed_worker_that_is_never_replaced_is_missed() -> None:
    story = Story()
    story.processes(1, 2)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1)
    story.processes(2)
    story.pass_time(5.0)
    story.processes(2)
    assert story.violations() == []
    story.pass_time(10.0)
    story.processes(2)
    assert broken_by(story) == ["I9"]


def test_a_killed_worker_that_is_seen_once_more_is_missed_all_the_same() -> None:
    story = Story()
    story.processes(1, 2)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1)
    story.processes(1, 2)
    story.processes(2)
    story.pass_time(15.0)
    story.processes(2)
    assert broken_by(story) == ["I9"]


def test_after_a_supervisor_s_end_no_workers_of_it_are_owed() -> None:
    story = Story()
    story.processes(1, 2)
    story.tell(SupervisorEnded, life=1, code=-9, signals=(9,))
    story.tell(SupervisorStarted, life=2, supervisor=101)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=3)
    for _ in range(2):
        story.processes(4, life=2)
        story.pass_time(15.0)
    assert story.violations() == []


def test_a_new_worker_with_the_pid_of_the_killed_one_is_another() -> None:
    story = Story()
    story.processes(1, 2)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1)
    both = (ObservedProcess(1, 70, "w3"), ObservedProcess(2, 2, "w2"))
    for _ in range(2):
        story.processes(workers=both)
        story.pass_time(15.0)
    assert story.violations() == []


def test_more_starts_than_the_bucket_has_are_too_many() -> None:
    story = Story()
    for first in range(0, 12, 2):
        story.processes(first + 1, first + 2)
    assert broken_by(story) == ["I9"]


def test_workers_that_were_there_before_anybody_looked_are_no_new_ones() -> None:
    story = Story()
    story.processes(*range(1, 21))
    story.processes(*range(1, 21), 21)
    assert story.violations(max_workers=30) == []
    story.processes(*range(1, 33))
    assert broken_by(story, max_workers=40) == ["I9"]


@pytest.mark.parametrize(("workers", "expected"), [(24, []), (27, ["I9"])])
def test_starts_that_nobody_saw_one_by_one_may_be_spread_over_the_time(workers: int, expected: list[str]) -> None:
    """Eight at once, and four a second for the four seconds in which nobody looked."""
    story = Story()
    story.processes()
    story.pass_time(4.0)
    story.processes(*range(1, workers + 1))
    assert broken_by(story, max_workers=40) == expected


def test_starts_as_the_bucket_allows_are_fine() -> None:
    story = Story()
    for first in range(0, 24, 2):
        story.processes(first + 1, first + 2)
        story.pass_time(0.5)
    assert story.violations() == []


@pytest.mark.parametrize("there", [(1,), (1, 2, 3)], ids=["one is gone", "one is unknown"])
def test_status_that_is_not_what_is_there_twice_in_a_row_is_untrue(there: tuple[int, ...]) -> None:
    story = Story()
    story.status(1, 2, there=there)
    assert story.violations() == []
    story.status(1, 2, there=there)
    assert broken_by(story) == ["I10"]


def test_a_limit_in_status_that_is_not_the_one_that_was_set_is_untrue() -> None:
    story = Story()
    story.status(1, max=3)
    assert broken_by(story) == ["I10"]


def test_a_grant_that_is_neither_released_nor_in_force_was_lost_count_of() -> None:
    story = Story()
    story.status(1, grants=4)
    assert broken_by(story) == ["I10"]


def test_a_failure_on_a_worker_to_which_nothing_was_done_came_from_a_neighbour() -> None:
    for hit, expected in (("w1", []), ("w2", ["I12"])):
        story = Story()
        story.ask(1)
        story.begin(1, "w1")
        story.tell(FaultInjected, fault="F1", action="kill", worker=hit, pid=1)
        story.fail(1, "worker_exited")
        assert broken_by(story, explains=DIES) == expected


@pytest.mark.parametrize(
    ("later", "spawned", "expected"), [(0.0, False, []), (4.0, False, []), (20.0, False, ["I12"]), (20.0, True, [])]
)
def test_what_befell_all_workers_is_felt_by_requests_and_workers_of_that_time(
    later: float, expected: list[str], *, spawned: bool
) -> None:
    story = Story()
    story.tell(FaultInjected, fault="F4", action="no_disk", worker="*", seconds=2.0)
    if spawned:
        story.tell(PoolEvent, what="worker_spawned", worker="w1")
    story.pass_time(2.0 + later)
    story.ask(1)
    story.begin(1, "w1")
    story.fail(1, "worker_exited")
    assert broken_by(story, explains=DIES) == expected


def test_waiting_that_grows_under_faults_for_those_who_were_let_alone_is_felt() -> None:
    for delay, expected in ((0.2, []), (3.0, ["I12"])):
        story = Story()
        for number in range(400):
            story.ask(number)
            if number >= 200:
                story.t += delay
            story.begin(number)
            story.answer(number)
            story.part(number)
            if number == 199:
                story.t = 20.0
        story.end()
        assert broken_by(story, compares_waits=True, calm=20.0) == expected


def test_where_requests_wait_before_any_fault_waiting_times_say_nothing_of_faults() -> None:
    story = Story()
    for number in range(400):
        story.ask(number)
        story.t += 0.4 if number < 200 else 4.0
        story.begin(number)
        story.answer(number)
        story.part(number)
        story.t = 90.0 if number == 199 else story.t
    story.end()
    assert story.violations(compares_waits=True, calm=90.0) == []


def test_a_front_end_that_hears_late_because_others_read_slowly_is_felt() -> None:
    story = Story()
    story.tell(OutcomeReceived, front_end=1, seconds=5.0)
    assert story.violations() == []
    assert broken_by(story, max_delivery_delay=2.0) == ["I12"]
