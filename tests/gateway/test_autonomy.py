"""What agents do by themselves over a whole gateway: who is woken, which turn tells what, what others see of it."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolClosed, UsageError
from gateway.autonomy import AutonomySettings
from heartbeat.settings import ActiveHours, HeartbeatSettings
from pool.stimuli import Capacity
from profiles import AgentSettings, ProfilesSettings
from router.settings import RouterSettings
from tests.gateway.telling import BUILT, end_command, inject, pending
from tests.gateway.world import WholeStore, World, open_world, telegram
from wire.units import Seconds

MAIN = "agent:main:main:main"
WELL = "say The build went well."


def on(**changes: Any) -> AutonomySettings:
    """Agents main and ops with a heartbeat that never comes by itself while a test lasts."""
    settings = HeartbeatSettings(
        **{"every": Seconds(86_400), "exec_prompt": WELL, "prompt": "say HEARTBEAT_OK", **changes}
    )
    return AutonomySettings(heartbeats={"main": settings, "ops": settings})


async def settle(seconds: float = 0.3) -> None:
    """Longer than a wake waits for others."""
    await trio.sleep(seconds)
    await wait_all_tasks_blocked()


async def alerts(world: World) -> list[str]:
    return [event["data"]["text"] for event in await world.events("alert")]


async def outcomes(world: World) -> list[str]:
    """What came of every beat since the last call."""
    events = await world.events("heartbeat")
    return [event["data"].get("skipped") or event["data"]["state"] for event in events]


# --- by the clock -----------------------------------------------------------------------------------------------------


@pytest.mark.world(autonomy=on())
async def test_a_supervisor_that_is_shutting_down_refuses_a_beat_instead_of_keeping_its_caller_waiting(
    world: World,
) -> None:
    world.gateway.intake.is_closed = True
    with pytest.raises(PoolClosed, match="shutting down"), trio.fail_after(10):
        await world.call("heartbeat.run")


@pytest.mark.world(autonomy=on(every=Seconds(60)))
async def test_an_agent_that_finds_nothing_beats_each_minute_and_leaves_no_trace(world: World) -> None:
    await world.ask("hello", MAIN)
    before = await world.call("sessions.get", session=MAIN)
    await world.events()
    await trio.sleep(600)
    events = await world.events()
    told = [event for event in events if event["type"] == "heartbeat"]
    beats = [event for event in told if event["data"]["agent"] == "main"]
    assert {event["data"]["state"] for event in beats} == {"silent"}
    assert 8 <= len(beats) <= 11
    assert world.launcher.prompts.count("say HEARTBEAT_OK") >= len(beats)
    assert [event["data"] for event in events if "HEARTBEAT" in str(event["data"])] == [
        event["data"] for event in told if event["data"].get("text")
    ], "nobody is shown what it said, but for those who govern"
    after = await world.call("sessions.get", session=MAIN)
    assert {**after, "worker": before["worker"]} == before


@pytest.mark.world(autonomy=on(every=Seconds(60), prompt="say The disk is full."))
async def test_what_an_agent_finds_is_told_once_where_its_session_last_spoke_and_is_activity(world: World) -> None:
    await world.ask("hello", source=telegram())
    used = (await world.call("sessions.get", session=MAIN))["updated_at"]
    await world.events()
    await trio.sleep(300)
    alerts = await world.events("alert")
    (alert,) = [event for event in alerts if event["data"]["agent"] == "main"]
    assert (alert["data"]["to"], alert["data"]["text"]) == ("telegram:7", "The disk is full.")
    assert (await world.call("sessions.get", session=MAIN))["updated_at"] > used
    (status,) = [each for each in await world.call("heartbeat.status") if each["agent"] == "main"]
    assert status["counts"]["alert"] == 1
    assert status["counts"]["repeated"] >= 3


@pytest.mark.parametrize(("workers", "states"), [(1, {"no-worker"}), (2, {"silent"})])
async def test_a_beat_by_the_clock_has_a_worker_started_where_the_pool_has_room_and_takes_none_that_is_not_free(
    tmp_path: Path, autojump_clock: MockClock, workers: int, states: set[str]
) -> None:
    async with open_world(tmp_path, autonomy=on(every=Seconds(60)), workers=workers) as world:
        await world.hanging()
        await trio.sleep(70)
        assert states <= set(await outcomes(world))
        assert ("say HEARTBEAT_OK" in world.launcher.prompts) == (workers == 2)


# --- woken ------------------------------------------------------------------------------------------------------------


@pytest.mark.world(autonomy=on())
async def test_the_end_of_a_command_wakes_its_agent_in_its_session(world: World) -> None:
    await world.ask("background")
    end_command(world.launcher.workers[0])
    await settle()
    assert world.launcher.prompts == ["background", f"[SYSTEM] {BUILT}\n\n{WELL}"]
    assert await alerts(world) == ["The build went well."]
    assert await pending(world) == []
    await world.ask("what now?")
    assert world.launcher.prompts[-1] == "what now?"


HOURS = ActiveHours(start="23:00", end="24:00", tz="UTC")  # the test begins at 13:46:40


@pytest.mark.world(autonomy=on(active_hours=HOURS))
async def test_what_ends_outside_the_active_hours_is_told_when_they_begin(world: World) -> None:
    await world.ask("background")
    end_command(world.launcher.workers[0])
    await settle(9 * 3600)
    assert await alerts(world) == []
    await settle(900)
    assert await alerts(world) == ["The build went well."]
    assert await pending(world) == []


@pytest.mark.world(autonomy=on(every=Seconds(0), wake=False))
async def test_an_agent_whose_heartbeat_is_off_is_told_with_the_next_turn(world: World) -> None:
    await world.ask("background")
    end_command(world.launcher.workers[0])
    await settle(86_400)
    assert await outcomes(world) == []
    await world.ask("what now?")
    assert world.launcher.prompts[1:] == [f"[SYSTEM] {BUILT}\n\nwhat now?"]


@pytest.mark.world(autonomy=on(cron_prompt="say HEARTBEAT_OK"))
async def test_whatever_is_injected_wakes_the_agent_it_is_for(world: World) -> None:
    for kind in ("cron", "delegate", "channel", "other"):
        await inject(world, f"{kind} rang", "agent:ops:main:main", kind=kind)
        await settle(120)
        assert world.launcher.prompts[-1].startswith(f"[SYSTEM] {kind} rang\n\n")
        assert await pending(world, "agent:ops:main:main") == []


@pytest.mark.world(autonomy=on())
async def test_the_outcome_of_a_delegated_task_wakes_its_giver(world: World) -> None:
    await world.ask("hello")
    await world.call("delegate", session="alice", agent="ops", task="say done", mode="async")
    await settle(1)
    lines, prompt = world.launcher.prompts[-1].split("\n\n")
    assert lines.startswith("[SYSTEM] Task completed (agent ops, run ")
    assert prompt == WELL  # the prompt for ended work
    assert await pending(world) == []


# --- one turn tells it ------------------------------------------------------------------------------------------------


@pytest.mark.world(autonomy=on(skip_when_busy=False))
async def test_what_a_turn_is_telling_no_beat_tells_too(world: World) -> None:
    await inject(world, BUILT, kind="exec")
    worker = await world.hanging()
    assert worker.text == "hang"
    await settle(5)
    worker.finish()
    await settle(5)
    assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nhang"]
    assert await outcomes(world) == ["nothing-pending"]


@pytest.mark.world(autonomy=on())
async def test_what_a_turn_has_told_in_vain_is_told_by_the_next_beat(world: World) -> None:
    await inject(world, BUILT, kind="exec")
    assert (await world.ask("fail")).status == "error"
    await settle(5)
    assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nfail", f"[SYSTEM] {BUILT}\n\n{WELL}"]
    assert await alerts(world) == ["The build went well."]


@pytest.mark.world(autonomy=on(exec_prompt="hang"))
async def test_a_message_during_a_beat_waits_for_its_end_and_tells_nothing_that_the_beat_tells(
    world: World,
) -> None:
    await inject(world, BUILT, kind="exec")
    await settle()
    worker = world.launcher.running("hang")
    run = await world.begin("hello", queue="steer")
    assert (worker.steers, run.outcome) == ([], None)
    worker.finish("All is well. HEARTBEAT_OK")
    assert (await run.wait()).status == "ok"
    assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nhang", "hello"]
    world.assert_at_rest()


@pytest.mark.world(autonomy=on(exec_prompt="hang"))
async def test_an_event_during_a_beat_is_told_by_another_one(world: World) -> None:
    for text in ("first", "second"):
        await inject(world, text, kind="exec")
        await settle()
    for _ in range(2):
        world.launcher.running("hang").finish("HEARTBEAT_OK")
        await settle(2)
    assert world.launcher.prompts == ["[SYSTEM] first\n\nhang", "[SYSTEM] second\n\nhang"]
    assert await pending(world) == []


@pytest.mark.world(autonomy=on(every=Seconds(0), wake=False))
async def test_a_prompt_that_is_sent_again_tells_again(world: World) -> None:
    await inject(world, BUILT, kind="exec")
    run = await world.begin("hang", retry_safe=True)
    world.launcher.running("hang").die()
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish()
    assert (await run.wait()).status == "ok"
    assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nhang"] * 2
    assert await pending(world) == []


@pytest.mark.world(autonomy=on(), workers=1)
async def test_the_end_of_a_command_waits_for_a_worker_of_a_busy_pool(world: World) -> None:
    worker = await world.hanging()
    await inject(world, BUILT, "bob", kind="exec")
    await settle(5)
    worker.finish()
    await settle(5)
    assert world.launcher.prompts == ["hang", f"[SYSTEM] {BUILT}\n\n{WELL}"]


# --- lives ------------------------------------------------------------------------------------------------------------


async def test_a_beat_that_was_cut_off_is_gone_on_with_before_a_turn_tells_what_it_told(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, autonomy=on(exec_prompt="hang")) as world:
        await inject(world, BUILT, kind="exec")
        await settle()
        await world.begin("hello")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left, autonomy=on(retry_delay=Seconds(1))) as world:
        await settle(5)
        assert world.launcher.prompts == ["hello", f"[SYSTEM] {BUILT}\n\n{WELL}"]
        assert await alerts(world) == ["The build went well."]


async def test_nothing_begins_and_nothing_fails_while_the_supervisor_shuts_down(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, autonomy=on()) as world:
        world.gateway.shut_down()
        world.autonomy.close()
        await inject(world, BUILT, kind="exec")
        await settle(30)
        assert (world.launcher.prompts, await outcomes(world)) == ([], [])
    async with open_world(tmp_path, store=store.after_a_stop(), autonomy=on()) as world:
        await settle(5)
        assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\n{WELL}"]


# --- asked for --------------------------------------------------------------------------------------------------------


@pytest.mark.world(autonomy=on(), router=RouterSettings())
async def test_a_beat_is_asked_for_in_the_session_that_is_named(world: World) -> None:
    await world.ask("hello", "alice", agent="ops")
    report = await world.call("heartbeat.run", session="alice")
    assert (report["agent"], report["session"], report["outcome"]) == ("ops", "alice", "silent")
    assert (await world.call("heartbeat.run", agent="ops"))["session"] == "agent:ops:main:main"
    assert (await world.call("heartbeat.run"))["session"] == MAIN
    with pytest.raises(UsageError, match="session alice is agent ops's, not main's"):
        await world.call("heartbeat.run", agent="main", session="alice")
    with pytest.raises(UsageError, match="there is no agent 'quick'; there are: main, ops"):
        await world.call("heartbeat.run", agent="quick")


@pytest.mark.world(autonomy=on(), router=RouterSettings())
async def test_a_checklist_is_read_where_the_session_has_its_worker(world: World) -> None:
    world.launcher.node, world.launcher.files = "far", {"HEARTBEAT.md": b"# Things\n\n- [ ]\n"}
    home = trio.Path(world.gateway.profile_cache.workspace_of("ops", "default", MAIN), "HEARTBEAT.md")
    await home.parent.mkdir(parents=True)
    await home.write_text("- look here\n")
    assert (await world.call("heartbeat.run", session="alice", agent="ops"))["outcome"] == "silent", "it has none yet"
    assert (await world.call("heartbeat.run", session="alice"))["skipped"] == "empty-checklist"


@pytest.mark.world(
    autonomy=on(), router=RouterSettings(), profiles=ProfilesSettings(agents={"ops": AgentSettings(group="gpu")})
)
async def test_a_checklist_on_a_node_is_not_judged_without_a_worker_there(world: World) -> None:
    world.gateway.pool.submit(Capacity(slots={"gpu": 1}))
    report = await world.call("heartbeat.run", agent="ops")
    why = "HEARTBEAT.md cannot be read: it lies on a node of group gpu, where the session has no worker"
    assert (report["outcome"], report["problem"]) == ("silent", why)


@pytest.mark.world(autonomy=on(prompt="/new"))
async def test_a_prompt_of_the_settings_that_looks_like_a_command_is_none(world: World) -> None:
    await world.call("heartbeat.run")
    assert world.launcher.prompts == ["/new"]
