"""Scheduled tasks from one life of the supervisor to the next, and from one settings file to the next."""

from datetime import UTC, datetime

import msgspec
import pytest
import trio

from errors import UsageError
from heartbeat.cron.job_store import JOB_KIND, STATE_KIND
from heartbeat.cron.requests import CronAdd, CronList, CronName
from heartbeat.cron.settings import CronSettings, JobMode
from heartbeat.ports import BeatAnswer
from tests.heartbeat.cron.house import BEGIN, House, isolated, look, running

HOUR = 3600.0
JOB = CronName(id="job")


async def test_a_run_that_a_stop_cuts_off_is_remembered_and_not_run_again(house: House) -> None:
    house.takes = HOUR
    async with running(house, max_running=1, job=isolated(24 * HOUR), other=isolated(24 * HOUR)):
        await trio.sleep(24 * HOUR + 10.0)
    assert len(house.requests) == 1
    assert "interrupted" in house.alerts[0].text
    house.takes = 0.0
    async with running(house, job=isolated(24 * HOUR), other=isolated(24 * HOUR)) as service:
        await trio.sleep(10.0)
        assert [outcome.status for outcome in look(service).history] == ["interrupted"]
    assert [request.session for _, request in house.requests] == ["cron:job", "cron:other"], "what waited runs then"


async def test_a_run_that_a_kill_cuts_off_is_asked_for_again_by_its_own_name(house: House) -> None:
    house.takes = HOUR
    async with running(house, job=isolated(HOUR)):
        await trio.sleep(HOUR + 10.0)
        at_the_kill = {kind: dict(bodies) for kind, bodies in house.kept.items()}
    later = House()
    later.kept = at_the_kill
    later.answer = BeatAnswer(ok=True, text="done meanwhile")
    async with running(later, job=isolated(HOUR)):
        await trio.sleep(10.0)
    assert later.requests[0][1].run_id == house.requests[0][1].run_id
    assert [alert.text for alert in later.alerts] == ["done meanwhile"]
    assert len(later.requests) == 1


async def test_an_added_job_is_there_in_the_next_life(house: House) -> None:
    async with running(house) as service:
        added = await service.add(CronAdd(id="job", text="x", every="2h", mode=JobMode.ISOLATED))
        assert added.next_due == BEGIN + 2 * HOUR
    await trio.sleep(HOUR)
    async with running(house) as service:
        assert look(service).next_due == BEGIN + 2 * HOUR
        await service.delete(JOB)
    assert house.kept == {JOB_KIND: {}, STATE_KIND: {}}
    async with running(house) as service:
        assert service.list(CronList()).total == 0


async def test_an_added_job_that_was_never_due_yet_is_caught_up_in_the_next_life(house: House) -> None:
    async with running(house) as service:
        await service.add(CronAdd(id="job", text="x", at="2h", mode=JobMode.ISOLATED))
    await trio.sleep(3 * HOUR)
    async with running(house):
        await trio.sleep(60.0)
    assert house.begun == [3 * HOUR]
    assert house.kept == {JOB_KIND: {}, STATE_KIND: {}}


async def test_documents_that_cannot_be_read_are_told_and_left_alone(house: House) -> None:
    house.kept = {
        JOB_KIND: {"a": b"{", "b": b'{"id":"b"}', "c": b"[" * 100_000},
        STATE_KIND: {"job": b"\xff"},
    }
    async with running(house, job=isolated()) as service:
        problems = service.list(CronList()).problems
        assert [word for word in ("job a", "job b", "job c", "job job") if word in " ".join(problems)] == [
            *("job a", "job b", "job c", "job job")
        ]
        assert service.status().problems == problems
    assert house.kept[JOB_KIND].keys() == {"a", "b", "c"}


async def test_a_kept_job_whose_zone_is_gone_is_told(house: House) -> None:
    async with running(house) as service:
        await service.add(CronAdd(id="job", text="x", cron="0 8 * * *", tz="Europe/Berlin"))
    house.kept[JOB_KIND]["job"] = house.kept[JOB_KIND]["job"].replace(b"Europe/Berlin", b"Mars/Olympus1")
    async with running(house) as service:
        assert service.status().jobs == 0
        assert "Mars/Olympus1" in service.status().problems[0]


async def test_what_is_kept_of_jobs_that_are_gone_is_dropped(house: House) -> None:
    async with running(house, job=isolated(), old=isolated()):
        await trio.sleep(61.0)
    async with running(house, job=isolated()):
        await trio.sleep(1.0)
    assert house.kept[STATE_KIND].keys() == {"job"}


async def test_a_job_of_the_settings_can_be_changed_only_there(house: House) -> None:
    async with running(house, job=isolated()) as service:
        with pytest.raises(UsageError, match=r"\[cron\.jobs\.job\] of the settings file; delete it there"):
            await service.delete(JOB)
        with pytest.raises(UsageError, match="change it there"):
            await service.add(CronAdd(id="job", text="x", every="1m", replace=True))
        assert service.run_now(JOB).running_since == BEGIN


async def test_other_settings_hold_at_once_and_leave_what_is_as_before_alone(house: House) -> None:
    async with running(house, stays=isolated(), goes=isolated(), changes=isolated(), max_running=1) as service:
        await trio.sleep(61.0)
        house.requests.clear()
        puts = house.puts
        service.reconfigure(
            CronSettings(jobs={"stays": isolated(), "changes": isolated(100.0), "comes": isolated(70.0)}, max_running=2)
        )
        assert house.puts - puts == 3, "one is forgotten, one is another, one is new"
        await trio.sleep(60.0)
    assert [(round(at), request.session) for at, request in house.requests] == [
        *((70, "cron:comes"), (100, "cron:changes"), (120, "cron:stays"))
    ]


async def test_a_higher_limit_holds_at_once(house: House) -> None:
    house.takes = HOUR
    jobs = {"a": isolated(), "b": isolated()}
    async with running(house, jobs, max_running=1) as service:
        await trio.sleep(70.0)
        assert service.status().running == 1
        service.reconfigure(CronSettings(jobs=jobs, max_running=2))
        assert service.status().running == 2


async def test_an_added_job_that_the_settings_define_too_is_kept_for_when_they_do_not(house: House) -> None:
    async with running(house) as service:
        await service.add(CronAdd(id="job", text="added", every="1m"))
        service.reconfigure(CronSettings(jobs={"job": isolated(text="set")}))
        assert look(service).text == "set"
        assert "theirs holds" in service.status().problems[0]
        service.reconfigure(CronSettings())
        assert look(service).text == "added"
        assert service.status().problems == ()


async def test_a_job_of_the_settings_that_cannot_be_used_is_told_and_passed_over(house: House) -> None:
    async with running(house, job=isolated(agent="nobody"), fine=isolated()) as service:
        assert service.status().jobs == 1
        assert "there is no agent 'nobody'" in service.status().problems[0]
        service.reconfigure(CronSettings(jobs={"job": isolated(agent="ops"), "fine": isolated()}))
        assert service.status().jobs == 2
        assert service.status().problems == ()


async def test_a_moment_of_the_settings_that_had_passed_at_first_sight_is_told_and_not_run(house: House) -> None:
    past = isolated(every=None, at=datetime.fromtimestamp(BEGIN - 60.0, UTC))
    async with running(house, job=past) as service:
        await trio.sleep(HOUR)
        assert "had passed when it was first seen" in service.status().problems[0]
    assert house.requests == []


async def test_a_moment_of_the_settings_that_has_been_used_is_no_problem(house: House) -> None:
    soon = isolated(every=None, at=datetime.fromtimestamp(BEGIN + 60.0, UTC))
    async with running(house, job=soon):
        await trio.sleep(61.0)
    async with running(house, job=soon) as service:
        await trio.sleep(HOUR)
        assert service.status().problems == ()
        service.reconfigure(CronSettings(jobs={"job": msgspec.structs.replace(soon, text="another text")}))
        assert service.status().problems == ()
    assert len(house.requests) == 1
