"""When jobs run although nobody was there, runs go wrong, or the clock is set."""

from itertools import pairwise

from heartbeat.cron.jobs import MAX_HISTORY, CronRunStatus
from heartbeat.cron.machine import BACKOFF
from heartbeat.cron.schedule import At, Cron, Every
from heartbeat.cron.settings import JobMode
from tests.heartbeat.cron.machines import BEGIN, Paper, make_cron_job

DAY = 86_400.0
HOUR = 3600.0


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
