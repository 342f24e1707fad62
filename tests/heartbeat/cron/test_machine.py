"""When jobs run, story by story; also where runs go wrong, no supervisor runs, or the clock is set."""

from itertools import pairwise

import pytest

from errors import Conflict, UsageError
from heartbeat.cron.jobs import MAX_HISTORY, CronRunStatus, JobSource
from heartbeat.cron.machine import BACKOFF
from heartbeat.cron.schedule import At, Cron, Every
from heartbeat.cron.settings import JobMode
from tests.heartbeat.cron.machines import BEGIN, Paper, make_cron_job

DAY = 86_400.0
HOUR = 3600.0


def test_a_job_that_speaks_in_a_conversation_runs_as_often_and_waits_for_nobody() -> None:
    paper = Paper(max_running=1)
    for name in "abc":
        paper.put(make_cron_job(name, mode=JobMode.MAIN))
    paper.tick(60.0)
    assert [name for name, _ in paper.begun] == ["a", "b", "c"]
    assert paper.machine.running == 0


def test_a_moment_comes_once() -> None:
    paper = Paper.with_job(schedule=At(BEGIN + 30 * 365 * DAY))
    assert paper.next_due() == 30 * 365 * DAY
    assert paper.run_through(31 * 365 * DAY) == [30 * 365 * DAY]
    assert paper.next_due() is None
    paper.restart(after=DAY)
    assert paper.next_due() is None


def test_a_job_that_is_off_is_not_due_and_can_be_run_by_hand() -> None:
    paper = Paper.with_job(enabled=False)
    assert paper.run_through(HOUR) == []
    paper.run_now()
    paper.end()
    assert paper.outcomes()[-1].due is None
    assert paper.next_due() is None


def test_what_falls_due_while_the_job_runs_passes() -> None:
    paper = Paper.with_job()
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
    paper = Paper.with_job()
    paper.tick(60.0)
    paper.put(make_cron_job(schedule=Every(10.0, BEGIN)))
    paper.tick(100.0)
    assert len(paper.begun) == 1
    paper.end()
    paper.tick()
    assert paper.begun[-1][1].started_at == paper.now
    assert paper.begun[-1][1].due == BEGIN + 70.0


def test_a_job_with_another_text_goes_on_with_its_run() -> None:
    paper = Paper.with_job()
    paper.tick(60.0)
    paper.put(make_cron_job(text="water the other plants"))
    paper.tick(30.0)
    paper.end()
    assert paper.history() == [CronRunStatus.OK]
    assert paper.next_due() == 120.0


def test_nor_does_one_that_was_removed_and_added_again() -> None:
    paper = Paper.with_job()
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


def test_the_number_of_runs_is_limited_and_the_one_due_first_is_the_first() -> None:
    paper = Paper(max_running=2)
    for name, first in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("d", 4.0)):
        paper.put(make_cron_job(name, Every(HOUR, BEGIN + first)))
    paper.tick(10.0)
    assert (paper.machine.running, paper.machine.waiting, paper.machine.status("c").is_waiting) == (2, 2, True)
    paper.end(name="b")
    assert [name for name, _ in paper.begun] == ["a", "b", "c"]


def test_a_run_by_hand_takes_nothing_from_the_schedule() -> None:
    paper = Paper.with_job(schedule=Every(HOUR, BEGIN), delete_after_run=True)
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
    paper = Paper.with_job(schedule=Every(HOUR, BEGIN))
    paper.tick(HOUR)
    paper.end(CronRunStatus.REFUSED)
    paper.run_now()
    paper.end(CronRunStatus.FAILED)
    paper.run_through(2 * HOUR - 1.0)
    assert [ticket.due for _, ticket in paper.begun] == [BEGIN + HOUR, None, BEGIN + HOUR]
    assert len(paper.reported) == 2, "a failure of a run by hand is reported in any case"


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


def test_a_job_for_one_run_is_gone_after_it() -> None:
    paper = Paper.with_job(schedule=At(BEGIN + 60.0), delete_after_run=True)
    paper.run_through(61.0)
    assert "job" not in paper.machine
    assert paper.states == {}


def test_one_that_went_wrong_stays_to_be_seen() -> None:
    paper = Paper.with_job(schedule=At(BEGIN + 60.0), delete_after_run=True)
    paper.run_through(61.0, CronRunStatus.FAILED)
    assert paper.history() == [CronRunStatus.FAILED]
    assert paper.next_due() is None


def test_one_of_the_settings_stays_as_a_name_and_is_due_no_more() -> None:
    paper = Paper.with_job(delete_after_run=True, source=JobSource.SETTINGS)
    assert paper.run_through(HOUR) == [60.0]
    paper.restart(after=HOUR)
    assert paper.next_due() is None
    assert paper.state().spent


def test_an_interrupted_run_is_reported_costs_no_back_off_and_what_was_missed_since_is_caught_up() -> None:
    paper = Paper.with_job(schedule=Every(HOUR, BEGIN))
    paper.tick(HOUR)
    paper.restart(after=90 * 60.0)
    paper.end(CronRunStatus.INTERRUPTED)
    assert [report.outcome.status for report in paper.reported] == [CronRunStatus.INTERRUPTED]
    assert paper.state().failures == 0
    paper.tick()
    assert paper.begun[-1][1].due == BEGIN + 2 * HOUR


def test_a_job_whose_schedule_changed_meanwhile_begins_anew_and_keeps_its_history() -> None:
    paper = Paper.with_job()
    paper.run_through(60.0)
    paper.jobs["job"] = make_cron_job(schedule=Every(100.0, BEGIN))
    paper.restart(after=HOUR)
    assert paper.next_due() == 3700.0
    assert paper.history() == [CronRunStatus.OK]


def test_a_job_that_has_come_to_speak_meanwhile_leaves_its_run_behind() -> None:
    paper = Paper.with_job()
    paper.tick(60.0)
    paper.jobs["job"] = make_cron_job(mode=JobMode.MAIN)
    paper.restart()
    assert paper.open == {}
    assert paper.history() == [CronRunStatus.INTERRUPTED]


def test_after_failures_in_a_row_the_next_run_waits_longer_and_longer() -> None:
    paper = Paper.with_job(schedule=Every(1.0, BEGIN))
    begun = paper.run_through(3 * HOUR, CronRunStatus.FAILED)
    assert [after - before for before, after in pairwise(begun)] == [*BACKOFF, HOUR]
    assert paper.state().failures == len(begun)


def test_a_run_that_never_began_is_tried_again_for_the_same_due_time() -> None:
    paper = Paper.with_job(schedule=Every(DAY, BEGIN))
    begun = paper.run_through(DAY + 2 * HOUR, CronRunStatus.REFUSED)
    assert begun == [DAY, DAY + 30, DAY + 90, DAY + 390, DAY + 1290, DAY + 4890]
    assert {ticket.due for _, ticket in paper.begun} == {BEGIN + DAY}
    assert len({ticket.run for _, ticket in paper.begun}) == len(begun), "each is a run of its own"


def test_a_failure_is_reported_at_first_and_again_each_day() -> None:
    paper = Paper.with_job()
    paper.run_through(2 * DAY, CronRunStatus.FAILED)
    assert len(paper.begun) > 40
    assert len(paper.reported) == 3
    assert paper.reported[0].failures == 1


def test_interruptions_and_failures_after_a_success_or_an_interruption_are_reported() -> None:
    paper = Paper.with_job()
    for status in ("interrupted", "failed", "failed", "ok", "failed", "interrupted", "interrupted"):
        paper.tick(3600.0)
        paper.end(CronRunStatus(status))
    reported = [report.outcome.status.value for report in paper.reported]
    assert reported == ["interrupted", "failed", "failed", "interrupted", "interrupted"]


def test_a_long_error_is_kept_in_part() -> None:
    paper = Paper.with_job()
    paper.tick(60.0)
    paper.end(CronRunStatus.FAILED, error="x" * 10_000_000)
    assert paper.outcomes()[-1].error == "x" * 500


def test_the_history_keeps_the_latest_runs() -> None:
    paper = Paper.with_job()
    paper.run_through(100 * 60.0)
    assert len(paper.history()) == MAX_HISTORY
    assert paper.outcomes()[-1].due == BEGIN + 6000.0


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
    paper = Paper.with_job()
    paper.tick(10 * 365 * DAY)
    paper.end(CronRunStatus.FAILED)
    paper.now = BEGIN
    paper.tick()
    assert paper.next_due() == 60.0


def test_a_clock_that_was_years_ahead_does_not_silence_a_job_for_years() -> None:
    paper = Paper.with_job(schedule=Cron("0 * * * *"))
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
    paper = Paper.with_job(schedule=Every(DAY, BEGIN))
    paper.run_through(10 * DAY)
    paper.restart(after=-10 * 365 * DAY)
    paper.now = BEGIN + 10 * DAY + HOUR
    paper.tick()
    assert paper.open == {}
    assert paper.next_due() == 11 * DAY


def test_a_moment_that_has_come_by_a_wrong_clock_does_not_come_again() -> None:
    paper = Paper.with_job(schedule=At(BEGIN + DAY))
    paper.tick(2 * DAY)
    paper.end()
    paper.now = BEGIN
    paper.tick()
    assert paper.next_due() is None
