"""Scheduled jobs over a whole gateway: who is woken for them, where they are done, what their callers are told."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import Conflict
from gateway.autonomy import AutonomySettings
from heartbeat.cron.settings import CronJobSettings, CronSettings, JobMode
from router.settings import RouterSettings
from tests.gateway.front_ends.front_end import attached
from tests.gateway.telling import end_command, pending
from tests.gateway.test_autonomy import MAIN, alerts, on, settle
from tests.gateway.world import World, open_world
from wire.units import Seconds


def jobs(heartbeats: AutonomySettings | None = None, every: float = 86_400, **said: Any) -> AutonomySettings:
    """Job ``tidy`` beside these heartbeats (None: as ``on``)."""
    job = CronJobSettings(**{"text": "say tidied up", "every": Seconds(every), **said})
    return msgspec.structs.replace(heartbeats or on(), cron=CronSettings(jobs={"tidy": job}))


OFF = on(every=Seconds(0), wake=False)
ISOLATED: Any = {"mode": JobMode.ISOLATED}


@pytest.mark.world(autonomy=jobs(on(cron_prompt="say All is tidy."), 3600))
async def test_a_job_speaks_in_its_session_when_it_is_due(world: World) -> None:
    await trio.sleep(3700)
    assert world.launcher.prompts == ["[SYSTEM] [CRON:tidy] say tidied up\n\nsay All is tidy."]
    assert await alerts(world) == ["All is tidy."]


@pytest.mark.world(autonomy=jobs(OFF, 3600))
async def test_a_job_that_no_beat_would_tell_says_what_to_set(world: World) -> None:
    await wait_all_tasks_blocked()
    with pytest.raises(Conflict, match=r"set agents\.main\.heartbeat\.wake = true"):
        await world.call("cron.run", id="tidy")
    await trio.sleep(3700)
    job = await world.call("cron.get", id="tidy")
    assert (job["last"]["status"], job["last"]["error"]) == ("refused", job["problem"])
    assert (world.launcher.prompts, await pending(world, MAIN)) == ([], [])


@pytest.mark.world(autonomy=jobs(session="alice"))
async def test_a_job_whose_session_another_agent_has_is_refused_and_says_nothing_there(world: World) -> None:
    await world.ask("hello", "alice", agent="ops")
    with pytest.raises(Conflict, match="session alice is agent ops's"):
        await world.call("cron.run", id="tidy")
    assert await pending(world, "alice") == []


@pytest.mark.world(autonomy=jobs(), router=RouterSettings(default_agent="ops"))
async def test_a_job_that_names_no_agent_is_the_routers(world: World) -> None:
    assert (await world.call("cron.add", text="x", every="1h"))["agent"] == "ops"
    assert (await world.call("cron.get", id="tidy"))["session"] == "agent:ops:main:main"


async def transcript_of_next_run(world: World) -> str | None:
    await wait_all_tasks_blocked()
    await world.call("cron.run", id="tidy")
    await settle(5)
    transcript: str | None = (await world.call("sessions.get", session="cron:tidy"))["transcript"]
    return transcript


@pytest.mark.parametrize("keep", [False, True])
async def test_an_isolated_job_begins_a_new_conversation_each_time_unless_it_keeps_it(
    tmp_path: Path, autojump_clock: MockClock, *, keep: bool
) -> None:
    async with open_world(tmp_path, autonomy=jobs(keep=keep, **ISOLATED)) as world:
        first, second = await transcript_of_next_run(world), await transcript_of_next_run(world)
        assert first is not None
        assert (first == second) is keep


@pytest.mark.world(autonomy=jobs(**ISOLATED))
async def test_a_conversation_that_a_person_has_opened_in_the_session_of_a_job_is_not_removed(
    world: World, tmp_path: Path
) -> None:
    persons = tmp_path / "sessions" / "persons.jsonl"
    persons.parent.mkdir()
    persons.touch()
    world.launcher.transcripts[str(persons)] = ["before"]
    await transcript_of_next_run(world)
    async with attached(world, "cron:tidy") as front:
        await front.request("switch_session", session_file=str(persons))
        assert "error" not in front.answer(1)
    assert await transcript_of_next_run(world) not in (None, str(persons))
    assert persons.exists()


@pytest.mark.world(autonomy=jobs(**ISOLATED))
async def test_a_command_that_a_job_has_left_in_the_background_keeps_its_conversation(world: World) -> None:
    first = await transcript_of_next_run(world)
    await world.ask("background", "cron:tidy")
    assert await transcript_of_next_run(world) == first
    end_command(world.launcher.workers[0])
    await settle()
    assert await transcript_of_next_run(world) != first


@pytest.mark.world(autonomy=jobs(OFF, delivery="stdout", agent="ops", **ISOLATED))
async def test_the_answer_of_an_isolated_job_goes_where_it_is_to_go(world: World) -> None:
    await world.call("cron.run", id="tidy")
    await settle(5)
    assert world.launcher.prompts == ["[CRON:tidy] say tidied up"]
    (printed,) = world.printed
    assert "alert ops (agent:ops:main:main, cron)" in printed
    assert (await world.call("sessions.get", session="cron:tidy"))["agent"] == "ops"
    figures = (await world.call("status"))["gateway"]["autonomy"]
    assert (figures["heartbeats"], figures["cron"]["jobs"], figures["alerts"]["accepted"]) == (0, 1, 1)
