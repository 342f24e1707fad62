"""When jobs run, story by story."""

from itertools import pairwise

import pytest

from errors import Conflict, UsageError
from heartbeat.cron.jobs import Source
from heartbeat.cron.machine import BACKOFF
from heartbeat.cron.records import MAX_HISTORY, Status
from heartbeat.cron.schedule import At, Cron, Every
from heartbeat.cron.settings import Mode
from tests.heartbeat.cron.machines import BEGIN, Paper, make_cron_job

DAY = 86_400.0
HOUR = 3600.0


def test_a_job_runs_at_each_of_its_due_times() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(60.0, BEGIN)))
    assert paper.run_through(200.0) == [60.0, 120.0, 180.0]
    assert paper.history() == [Status.OK] * 3
    assert [outcome.due for outcome in paper.outcomes()] == [BEGIN + 60.0, BEGIN + 120.0, BEGIN + 180.0]


def test_a_job_that_speaks_in_a_conversation_runs_as_often_and_waits_for_nobody() -> None:
    paper = Paper(max_running=1)
    for name in "abc":
        paper.put(make_cron_job(name, mode=Mode.MAIN))
    paper.tick(60.0)
    assert [name for name, _ in paper.begun] == ["a", "b", "c"]
    assert paper.machine.running == 0


def test_a_moment_comes_once() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=At(BEGIN + 30 * 365 * DAY)))
    assert paper.next_due() == 30 * 365 * DAY
    assert paper.run_through(31 * 365 * DAY) == [30 * 365 * DAY]
    assert paper.next_due() is None
    paper.restart(after=DAY)
    assert paper.next_due() is None


def test_a_job_that_is_off_is_not_due_and_can_be_run_by_hand() -> None:
    paper = Paper()
    paper.put(make_cron_job(enabled=False))
    assert paper.run_through(HOUR) == []
    paper.run_now()
    paper.end()
    assert paper.outcomes()[-1].due is None
    assert paper.next_due() is None


# --- no overlap -------------------------------------------------------------------------------------------------------


def test_what_falls_due_while_the_job_runs_passes() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.tick(120.0)
    assert len(paper.open) == 1
    paper.end()
    assert paper.state().overlapped == 1
    assert paper.next_due() == 240.0
    paper.tick(60.0)
    paper.tick(59.0)
    paper.end()
    assert paper.state().overlapped == 1
    paper.tick(1.0)
    paper.tick(60.0)
    paper.end()
    assert paper.state().overlapped == 2, "also where it falls due at the very end"


def test_a_replaced_job_does_not_overlap_with_its_former_self() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.put(make_cron_job(schedule=Every(10.0, BEGIN)))
    paper.tick(100.0)
    assert len(paper.begun) == 1
    paper.end()
    paper.tick()
    assert paper.begun[-1][1].started_at == paper.now
    assert paper.begun[-1][1].due == BEGIN + 70.0


def test_a_job_with_another_text_goes_on_with_its_run() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.put(make_cron_job(text="water the other plants"))
    paper.tick(30.0)
    paper.end()
    assert paper.history() == [Status.OK]
    assert paper.next_due() == 120.0


def test_nor_does_one_that_was_removed_and_added_again() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.remove("job")
    paper.put(make_cron_job())
    paper.tick(120.0)
    assert len(paper.begun) == 1
    with pytest.raises(Conflict, match="running"):
        paper.run_now()
    paper.end()
    paper.tick()
    assert len(paper.begun) == 2


def test_only_so_many_run_at_once_and_the_one_due_first_is_the_first() -> None:
    paper = Paper(max_running=2)
    for name, first in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("d", 4.0)):
        paper.put(make_cron_job(name, Every(HOUR, BEGIN + first)))
    paper.tick(10.0)
    assert [name for name, _ in paper.begun] == ["a", "b"]
    assert (paper.machine.running, paper.machine.waiting) == (2, 2)
    assert paper.machine.standing("c").is_waiting
    paper.end(name="b")
    assert [name for name, _ in paper.begun] == ["a", "b", "c"]
    assert paper.machine.next_wakeup() is not None


def test_a_higher_limit_lets_waiting_ones_begin() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name))
    paper.tick(60.0)
    assert [type(action).__name__ for action in paper.machine.set_max_running(2, paper.now)] == ["Keep", "Start"]


def test_one_that_waits_and_is_removed_does_not_begin() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name))
    paper.tick(60.0)
    paper.remove("b")
    paper.end(name="a")
    assert [name for name, _ in paper.begun] == ["a"]


def test_one_that_waits_and_is_turned_off_does_not_begin() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name))
    paper.tick(60.0)
    paper.put(make_cron_job("b", enabled=False))
    paper.end(name="a")
    assert [name for name, _ in paper.begun] == ["a"]


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_a_run_by_hand_takes_nothing_from_the_schedule() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(HOUR, BEGIN), delete_after_run=True))
    paper.tick(HOUR - 10.0)
    paper.run_now()
    paper.tick(20.0)
    paper.end()
    assert paper.state().overlapped == 0
    assert paper.next_due() == HOUR
    paper.tick()
    assert paper.begun[-1][1].due == BEGIN + HOUR
    paper.end()
    assert "job" not in paper.machine, "deleted after the run that was due"


def test_a_run_by_hand_within_the_back_off_leaves_what_is_owed() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(HOUR, BEGIN)))
    paper.tick(HOUR)
    paper.end(Status.REFUSED)
    paper.run_now()
    paper.end(Status.FAILED)
    paper.run_through(2 * HOUR - 1.0)
    assert [ticket.due for _, ticket in paper.begun] == [BEGIN + HOUR, None, BEGIN + HOUR]
    assert len(paper.told) == 2, "who asks by hand is told in any case"


def test_a_second_run_by_hand_is_refused_while_the_first_is_under_way_or_waits() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name, Every(HOUR, BEGIN)))
    paper.run_now("a")
    paper.run_now("b")
    with pytest.raises(Conflict, match="is running"):
        paper.run_now("a")
    with pytest.raises(Conflict, match="max_running = 1"):
        paper.run_now("b")
    with pytest.raises(UsageError, match="no job 'c'"):
        paper.run_now("c")


# --- after nobody was there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.MAIN])
def test_what_was_missed_is_caught_up_once(mode: Mode) -> None:
    paper = Paper()
    paper.put(make_cron_job(mode=mode))
    paper.run_through(60.0)
    paper.restart(after=10 * HOUR + 30.0)
    assert paper.run_through(10 * HOUR + 240.0)[:3] == [10 * HOUR + 90.0, 10 * HOUR + 120.0, 10 * HOUR + 180.0]
    assert paper.begun[1][1].due == BEGIN + 120.0


def test_a_moment_that_was_missed_is_caught_up() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=At(BEGIN + HOUR)))
    paper.restart(after=DAY)
    assert paper.run_through(2 * DAY) == [DAY]


def test_a_run_of_an_earlier_life_is_taken_up_and_not_run_again() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    (before,) = paper.open.values()
    paper.restart(after=HOUR)
    (after,) = paper.open.values()
    assert (after.ticket, after.is_resumed) == (before.ticket, True)
    paper.end()
    assert paper.history() == [Status.OK]
    assert len(paper.begun) == 1


def test_an_interrupted_run_is_told_costs_no_back_off_and_what_was_missed_since_is_caught_up() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(HOUR, BEGIN)))
    paper.tick(HOUR)
    paper.restart(after=90 * 60.0)
    paper.end(Status.INTERRUPTED)
    assert [tell.outcome.status for tell in paper.told] == [Status.INTERRUPTED]
    assert paper.state().failures == 0
    paper.tick()
    assert paper.begun[-1][1].due == BEGIN + 2 * HOUR


def test_an_interrupted_catching_up_is_not_caught_up_again() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(HOUR, BEGIN)))
    paper.tick(10 * HOUR + 60.0)
    paper.restart(after=60.0)
    paper.end(Status.INTERRUPTED)
    assert paper.next_due() == 11 * HOUR


def test_every_interruption_is_told() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    for _ in range(3):
        paper.tick(60.0)
        paper.end(Status.INTERRUPTED)
    assert len(paper.told) == 3


def test_a_job_whose_schedule_changed_meanwhile_begins_anew_and_keeps_its_history() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.run_through(60.0)
    paper.jobs["job"] = make_cron_job(schedule=Every(100.0, BEGIN))
    paper.restart(after=HOUR)
    assert paper.next_due() == 3700.0
    assert paper.history() == [Status.OK]


def test_a_job_that_has_come_to_speak_meanwhile_leaves_its_run_behind() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.jobs["job"] = make_cron_job(mode=Mode.MAIN)
    paper.restart()
    assert paper.open == {}
    assert paper.history() == [Status.INTERRUPTED]


# --- going wrong ------------------------------------------------------------------------------------------------------


def test_after_failures_in_a_row_the_next_run_waits_longer_and_longer() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(1.0, BEGIN)))
    begun = paper.run_through(3 * HOUR, Status.FAILED)
    assert [after - before for before, after in pairwise(begun)] == [*BACKOFF, HOUR]
    assert paper.state().failures == len(begun)


def test_a_failed_run_has_used_its_due_time_up() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(DAY, BEGIN)))
    assert paper.run_through(3 * DAY, Status.FAILED) == [DAY, 2 * DAY, 3 * DAY]


def test_a_run_that_never_began_is_tried_again_for_the_same_due_time() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(DAY, BEGIN)))
    begun = paper.run_through(DAY + 2 * HOUR, Status.REFUSED)
    assert begun == [DAY, DAY + 30, DAY + 90, DAY + 390, DAY + 1290, DAY + 4890]
    assert {ticket.due for _, ticket in paper.begun} == {BEGIN + DAY}
    assert len({ticket.run for _, ticket in paper.begun}) == len(begun), "each is a run of its own"


def test_one_success_ends_the_back_off() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.run_through(HOUR, Status.FAILED)
    paper.run_now()
    paper.end()
    assert paper.state().failures == 0
    due = paper.next_due()
    assert due is not None
    assert due <= paper.now - BEGIN + 60.0


def test_the_back_off_outlasts_a_restart() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(1.0, BEGIN)))
    paper.run_through(100.0, Status.FAILED)
    hold = paper.state().hold_until
    paper.restart(after=5.0)
    assert paper.next_due() == hold - BEGIN


def test_a_failure_is_told_at_first_and_again_each_day() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.run_through(2 * DAY, Status.FAILED)
    assert len(paper.begun) > 40
    assert len(paper.told) == 3
    assert paper.told[0].failures == 1


def test_a_failure_after_a_success_is_told_anew() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    for status in (Status.FAILED, Status.OK, Status.FAILED):
        paper.tick(60.0)
        paper.end(status)
    assert len(paper.told) == 2


def test_a_job_that_fails_once_a_day_is_told_each_time() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(DAY, BEGIN)))
    paper.run_through(5 * DAY, Status.FAILED)
    assert len(paper.told) == 5


def test_a_long_error_is_kept_in_part() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(60.0)
    paper.end(Status.FAILED, error="x" * 10_000_000)
    assert paper.outcomes()[-1].error == "x" * 500


def test_the_history_keeps_the_latest_runs() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.run_through(100 * 60.0)
    assert len(paper.history()) == MAX_HISTORY
    assert paper.outcomes()[-1].due == BEGIN + 6000.0


# --- for good ---------------------------------------------------------------------------------------------------------


def test_a_job_for_one_run_is_gone_after_it() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=At(BEGIN + 60.0), delete_after_run=True))
    paper.run_through(61.0)
    assert "job" not in paper.machine
    assert paper.states == {}


def test_one_that_went_wrong_stays_to_be_seen() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=At(BEGIN + 60.0), delete_after_run=True))
    paper.run_through(61.0, Status.FAILED)
    assert paper.history() == [Status.FAILED]
    assert paper.next_due() is None


def test_one_of_the_settings_stays_as_a_name_and_is_due_no_more() -> None:
    paper = Paper()
    paper.put(make_cron_job(delete_after_run=True, source=Source.SETTINGS))
    assert paper.run_through(HOUR) == [60.0]
    paper.restart(after=HOUR)
    assert paper.next_due() is None
    assert paper.state().spent


# --- the clock is set -------------------------------------------------------------------------------------------------


def test_a_clock_set_back_a_little_runs_nothing_twice() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(HOUR, BEGIN)))
    paper.run_through(5 * HOUR)
    paper.tick(-HOUR - 10.0)
    paper.tick(2 * HOUR)
    assert [ticket.due for _, ticket in paper.begun] == [BEGIN + hour * HOUR for hour in (1, 2, 3, 4, 5)]


def test_a_clock_set_back_while_a_job_waits_runs_nothing_twice() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name))
    paper.tick(60.0)
    paper.tick(-1.0)
    paper.end(name="a")
    paper.end(name="b")
    assert paper.next_due("b") == 120.0


def test_a_job_that_waits_while_the_clock_is_set_back_by_years_begins_once() -> None:
    paper = Paper(max_running=1)
    for name in "ab":
        paper.put(make_cron_job(name))
    paper.tick(2 * DAY)
    paper.now = BEGIN
    paper.tick()
    assert paper.next_due("b") is None
    paper.end(name="a")
    assert [name for name, _ in paper.begun] == ["a", "b"]


def test_a_back_off_by_a_wrong_clock_does_not_hold_for_years() -> None:
    paper = Paper()
    paper.put(make_cron_job())
    paper.tick(10 * 365 * DAY)
    paper.end(Status.FAILED)
    paper.now = BEGIN
    paper.tick()
    assert paper.next_due() == 60.0


def test_a_clock_that_was_years_ahead_does_not_silence_a_job_for_years() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Cron("0 * * * *")))
    paper.tick(10 * 365 * DAY)
    paper.end()
    paper.now = BEGIN
    paper.tick()
    due = paper.next_due()
    assert due is not None
    assert due <= HOUR
    paper.restart()
    assert paper.next_due() == due


def test_a_clock_that_was_years_behind_at_the_start_makes_no_extra_run() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=Every(DAY, BEGIN)))
    paper.run_through(10 * DAY)
    paper.restart(after=-10 * 365 * DAY)
    paper.now = BEGIN + 10 * DAY + HOUR
    paper.tick()
    assert paper.open == {}
    assert paper.next_due() == 11 * DAY


def test_a_moment_that_has_come_by_a_wrong_clock_does_not_come_again() -> None:
    paper = Paper()
    paper.put(make_cron_job(schedule=At(BEGIN + DAY)))
    paper.tick(2 * DAY)
    paper.end()
    paper.now = BEGIN
    paper.tick()
    assert paper.next_due() is None
