"""What the doors ask of scheduled tasks: add, list, look, remove, run."""

import msgspec
import pytest
import trio

from errors import Conflict, UsageError
from heartbeat.cron.requests import CronAdd, CronList, CronName
from heartbeat.cron.settings import JobMode
from tests.heartbeat.cron.house import BEGIN, House, isolated, look, running

HOUR = 3600.0
JOB = CronName(id="job")


async def test_a_job_without_a_name_is_given_one(house: House) -> None:
    async with running(house) as service:
        first, second = [await service.add(CronAdd(text="x", at="20m")) for _ in range(2)]
        assert first.id != second.id
        assert first.next_due == BEGIN + 1200.0
        assert first.delete_after_run
        assert (first.hold_until, first.running_since, first.last, first.history) == (None, None, None, ())


async def test_a_job_can_be_replaced_on_purpose_only(house: House) -> None:
    async with running(house) as service:
        await service.add(CronAdd(id="job", text="x", every="1m"))
        with pytest.raises(Conflict, match="there is a job job already"):
            await service.add(CronAdd(id="job", text="y", every="1m"))
        view = await service.add(CronAdd(id="job", text="y", every="1m", replace=True, enabled=False))
        assert (view.text, view.next_due) == ("y", None)


async def test_a_job_is_durable_before_it_is_answered(house: House) -> None:
    async with running(house) as service:
        house.disk = trio.Event()
        with trio.move_on_after(5.0) as scope:
            await service.add(CronAdd(id="job", text="x", every="1m"))
        assert scope.cancelled_caught


@pytest.mark.parametrize("at", ["2020-01-01T00:00:00Z", "0s"])
async def test_a_moment_that_has_passed_is_refused(house: House, at: str) -> None:
    async with running(house) as service:
        with pytest.raises(UsageError, match="has passed; `pool cron run`"):
            await service.add(CronAdd(text="x", at=at))


async def test_a_run_by_hand_is_refused_while_one_is_under_way(house: House) -> None:
    house.takes = 10.0
    async with running(house, job=isolated(HOUR)) as service:
        await trio.sleep(5.0)
        assert service.run_now(JOB).running_since == BEGIN + 5.0
        with pytest.raises(Conflict, match="is running"):
            service.run_now(JOB)
        await trio.sleep(11.0)
        assert look(service).running_since is None


async def test_a_job_whose_agent_would_not_be_woken_says_so_and_is_not_run_by_hand(house: House) -> None:
    house.deaf = UsageError("events do not wake agent main")
    async with running(house, other=isolated(HOUR)) as service:
        assert (await service.add(CronAdd(id="job", text="x", every="1m"))).problem == "events do not wake agent main"
        with pytest.raises(Conflict, match="job job does not run: events do not wake agent main"):
            service.run_now(JOB)
        view = look(service)
        assert (view.last, view.failures, house.alerts) == (None, 0, [])
        assert [job.problem for job in service.list(CronList()).jobs] == [view.problem, None]
        house.deaf, house.paused_until = None, BEGIN + 300.0
        view = service.run_now(JOB)
        assert (view.problem, view.heard_at) == (None, BEGIN + 300.0)
    assert len(house.spoken) == 1


async def test_a_job_that_is_switched_off_and_on_keeps_its_history_and_catches_nothing_up(house: House) -> None:
    async with running(house) as service:
        await service.add(CronAdd(id="job", text="x", every="1h", mode=JobMode.ISOLATED))
        await trio.sleep(HOUR + 1.0)
        view = await service.disable(JOB)
        assert (view.enabled, view.next_due, len(view.history)) == (False, None, 1)
        await trio.sleep(5 * HOUR)
    async with running(house) as service:
        assert not look(service).enabled, "over a restart too"
        view = await service.enable(JOB)
        assert (view.enabled, view.next_due, len(view.history)) == (True, BEGIN + 7 * HOUR, 1)
        await trio.sleep(60.0)
        assert len(look(service).history) == 1


async def test_a_job_of_the_settings_is_switched_there(house: House) -> None:
    async with running(house, job=isolated()) as service:
        for switch in (service.enable, service.disable):
            with pytest.raises(UsageError, match=r"\[cron.jobs.job\] of the settings file; change it there"):
                await switch(JOB)
        with pytest.raises(UsageError, match="there is no job 'other'"):
            await service.disable(CronName(id="other"))


async def test_an_unknown_job_is_refused(house: House) -> None:
    refusal = "there is no job 'job'; `pool cron list`"
    async with running(house) as service:
        with pytest.raises(UsageError, match=refusal):
            await service.delete(JOB)
        with pytest.raises(UsageError, match=refusal):
            service.run_now(JOB)
        with pytest.raises(UsageError, match=refusal):
            service.get(JOB)


async def test_a_long_list_comes_in_pages_and_without_what_is_long(house: House) -> None:
    jobs = {f"job{number}": isolated(text="x" * 30_000) for number in range(5)}
    async with running(house, jobs) as service:
        await trio.sleep(61.0)
        first = service.list(CronList(limit=3))
        rest = service.list(CronList(limit=3, after=first.jobs[-1].id))
        assert ([len(page.jobs) for page in (first, rest)], first.more, rest.more) == ([3, 2], True, False)
        assert not service.list(CronList(limit=5)).more
        assert len(msgspec.json.encode(first)) < 5000
        assert first.jobs[0].history == ()
        assert len(look(service, "job0").text) == 30_000
        assert len(look(service, "job0").history) == 1


async def test_more_jobs_than_are_possible_are_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heartbeat.cron.job_store.MAX_JOBS", 2)
    async with running(house, job=isolated()) as service:
        await service.add(CronAdd(id="second", text="x", every="1m"))
        with pytest.raises(UsageError, match="as many as are possible"):
            await service.add(CronAdd(id="third", text="x", every="1m"))
        await service.add(CronAdd(id="second", text="y", every="1m", replace=True))
