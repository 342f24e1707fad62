"""Scheduled tasks at work, in virtual time: when they run, what comes of it, what they cost."""

from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
import trio

from errors import PoolSaturated, UsageError
from heartbeat.cron.service import CronService
from heartbeat.cron.settings import CronJobSettings, CronSettings, JobMode
from heartbeat.ports import BeatAnswer
from tests.heartbeat.cron.house import BEGIN, House, isolated, look, running

HOUR = 3600.0


def spoken(every: float = 60.0, **facts: Any) -> CronJobSettings:
    return isolated(every, mode=JobMode.MAIN, **facts)


async def test_an_isolated_job_is_a_run_of_its_own_at_each_due_time(house: House) -> None:
    async with running(house, job=isolated(600.0, agent="ops", timeout=90.0)):
        await trio.sleep(1900.0)
    assert house.begun == pytest.approx([600.0, 1200.0, 1800.0])
    request = house.requests[0][1]
    assert (request.session, request.agent, request.lane) == ("cron:job", "ops", "cron")
    assert (request.text, request.timeout, request.room_only) == ("[CRON:job] water the plants", 90.0, False)
    runs = [request.run_id for _, request in house.requests]
    assert len({*runs}) == 3
    assert [(request.new_conversation, request.earlier) for _, request in house.requests] == [
        (True, tuple(runs[:number])) for number in range(3)
    ]


async def test_an_isolated_job_that_keeps_its_conversation_goes_on_with_it(house: House) -> None:
    async with running(house, job=isolated(600.0, keep=True)):
        await trio.sleep(700.0)
    assert [request.new_conversation for _, request in house.requests] == [False]


async def test_a_job_of_mode_main_speaks_in_its_conversation(house: House) -> None:
    async with running(house, job=spoken(), other=spoken(session="alice", agent="ops")) as service:
        await trio.sleep(61.0)
        assert look(service).last is not None
    assert house.spoken == [
        (60.0, "main agent:main:main:main", "[CRON:job] water the plants"),
        (60.0, "ops alice", "[CRON:other] water the plants"),
    ]
    assert house.requests == []


async def test_a_conversation_that_nobody_would_act_on_is_a_failure_that_is_tried_again(house: House) -> None:
    house.deaf = UsageError("the heartbeat of agent main is off")
    async with running(house, job=spoken(every=HOUR)) as service:
        await trio.sleep(HOUR + 10.0)
        assert look(service).failures == 1
        house.deaf = None
        await trio.sleep(30.0)
        assert look(service).failures == 0
    assert [at for at, *_ in house.spoken] == [HOUR + 30.0]
    assert [alert.text for alert in house.alerts] == [
        "The scheduled task job could not begin: the heartbeat of agent main is off"
    ]


async def test_the_wall_clock_of_the_zone_counts_also_where_it_changes(house: House) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2025, 3, 29, 12, 0, tzinfo=berlin).timestamp()
    house.clock_offset = start - BEGIN
    async with running(house, local=berlin, job=isolated(every=None, cron="30 2 * * *")):
        await trio.sleep(2 * 24 * HOUR)
    days = [datetime.fromtimestamp(start + at, berlin).strftime("%d %H:%M") for at in house.begun]
    assert days == ["30 03:00", "31 02:30"]


async def test_a_run_is_known_to_a_later_life_before_it_begins(house: House) -> None:
    async with running(house, job=isolated()):
        house.disk = trio.Event()
        await trio.sleep(100.0)
        assert house.requests == []
        house.disk.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(house.requests) == 1


async def test_the_clock_of_the_calendar_is_looked_at_every_minute(house: House) -> None:
    """The machine slept for a day, or somebody set the clock: the event loop's clock does not tell."""
    async with running(house, job=isolated(24 * HOUR)):
        await trio.sleep(100.0)
        house.clock_offset += 24 * HOUR
        await trio.sleep(60.0)
        assert len(house.requests) == 1


async def test_what_an_isolated_job_answers_is_delivered(house: House) -> None:
    house.answer = BeatAnswer(ok=True, text="Two plants are dry. HEARTBEAT_OK", media=("dry.png",))
    async with running(house, job=isolated(delivery="webhook:ops", session="alice")) as service:
        await trio.sleep(61.0)
        (run,) = look(service).history
    (alert,) = house.alerts
    assert (alert.text, alert.media, alert.reason) == ("Two plants are dry.", ("dry.png",), "cron")
    assert (alert.target, alert.session, alert.agent) == ("webhook:ops", "alice", "main")
    assert (alert.id, alert.ts) == (f"cron:{run.run}", BEGIN + 60.0)


@pytest.mark.parametrize(("media", "alerts"), [((), []), (("report.pdf",), [("report.pdf",)])])
async def test_an_answer_that_says_nothing_is_not_delivered_but_its_files_are(
    house: House, media: tuple[str, ...], alerts: list[tuple[str, ...]]
) -> None:
    house.answer = BeatAnswer(ok=True, text="HEARTBEAT_OK", media=media)
    async with running(house, job=isolated()) as service:
        await trio.sleep(61.0)
        assert [outcome.status for outcome in look(service).history] == ["ok"]
    assert [alert.media for alert in house.alerts] == alerts


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (
            BeatAnswer(ok=False, code="worker_exited", message="the worker died", text="Half an answ"),
            *("failed", "has failed: the worker died"),
        ),
        (BeatAnswer(ok=False, code="saturated", message="full", started=False), "refused", "could not begin: full"),
        (PoolSaturated("the pool is full"), "refused", "could not begin: the pool is full"),
        (
            BeatAnswer(ok=False, code="interrupted", message="it was in its turn"),
            *("interrupted", "was interrupted and is not run again: it was in its turn"),
        ),
        (BeatAnswer(ok=False), "failed", "has failed: the run failed without a word"),
    ],
)
async def test_a_run_that_goes_wrong_is_told_and_kept(
    house: House, answer: BeatAnswer | PoolSaturated, status: str, text: str
) -> None:
    house.answer = answer
    async with running(house, job=isolated(HOUR)) as service:
        await trio.sleep(HOUR + 1.0)
        view = look(service)
    assert view.last is not None
    assert view.last.status == status
    assert [alert.text for alert in house.alerts] == [f"The scheduled task job {text}"]


async def test_a_failure_that_lasts_is_told_again_with_how_often(house: House) -> None:
    house.answer = BeatAnswer(ok=False, message="no")
    async with running(house, job=isolated(24 * HOUR)) as service:
        await trio.sleep(60 * HOUR)
        view = look(service)
        assert (view.failures, service.status().failing) == (2, 1)
        assert view.hold_until is not None
    assert [alert.text for alert in house.alerts] == [
        "The scheduled task job has failed: no",
        "The scheduled task job has failed, 2 times in a row: no",
    ]


async def test_beginning_and_end_are_told_to_the_event_stream(house: House) -> None:
    async with running(house, job=isolated()):
        await trio.sleep(61.0)
    assert [(event["session"], event["job"], event["status"]) for event in house.told] == [
        ("cron:job", "job", "started"),
        ("cron:job", "job", "ok"),
    ]
    assert house.told[0]["due"] == BEGIN + 60.0


async def test_thousands_of_jobs_due_at_once_leave_time_for_others(house: House) -> None:
    jobs = {f"job{number}": spoken(HOUR, session=f"s{number}") for number in range(3000)}
    turns = [0]
    async with running(house, jobs):
        await trio.sleep(HOUR)
        while turns[-1] < 3000:
            await trio.lowlevel.checkpoint()
            turns.append(len(house.spoken))
    assert len({session for _, session, _ in house.spoken}) == 3000
    assert max(after - before for before, after in pairwise(turns)) <= 2 * 256


@pytest.mark.parametrize(("jobs", "looks"), [(0, 0), (1000, 60)])
async def test_an_idle_hour_costs_one_look_a_minute_and_none_without_jobs(house: House, jobs: int, looks: int) -> None:
    calls = 0

    def wall() -> float:
        nonlocal calls
        calls += 1
        return house.wall()

    settings = CronSettings(jobs={f"job{number}": isolated(2 * HOUR + number) for number in range(jobs)})
    service = CronService(settings, msgspec.structs.replace(house.ports(), wall=wall))
    await service.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        await trio.sleep(1.0)
        calls = 0
        await trio.sleep(HOUR)
        assert calls <= 2 * looks + 2 * bool(looks)
        nursery.cancel_scope.cancel()
    assert house.requests == []
