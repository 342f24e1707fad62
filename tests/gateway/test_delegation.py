"""Delegation: a task in a session of its own, whose outcome is told; bounded in depth and in number."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from errors import NestedSaturated, UsageError
from tests.gateway.world import WholeStore, World, open_world


async def delegate(world: World, task: str, session: str = "alice", **params: Any) -> dict[str, Any]:
    with trio.fail_after(60):
        answer: dict[str, Any] = await world.call("delegate", session=session, agent="main", task=task, **params)
    return answer


async def test_a_task_is_done_in_a_session_of_its_own_and_its_outcome_told_to_both(world: World) -> None:
    outcome = await delegate(world, "say it is done")
    assert (outcome["status"], outcome["text"]) == ("ok", "it is done")
    assert outcome["session"].startswith("subagent:")
    (told,) = await world.events("delegate_done")
    assert (told["session"], told["channel"]) == ("alice", "monitor")
    assert told["data"] == {name: outcome[name] for name in ("run_id", "session", "status", "text")}
    accepted = await delegate(world, "hang", mode="async")
    assert (accepted["status"], await world.events("delegate_done")) == ("accepted", [])
    world.launcher.running("hang").finish("late")
    (told,) = await world.events("delegate_done")
    assert (told["data"]["run_id"], told["data"]["text"]) == (accepted["run_id"], "late")


@pytest.mark.world(workers=4, delegate_depth=2)
async def test_a_delegated_task_may_delegate_only_so_deep(world: World) -> None:
    first = await delegate(world, "hang 1", mode="async")
    second = await delegate(world, "hang 2", session=first["session"], mode="async")
    with pytest.raises(NestedSaturated, match=r"3 delegations deep, the limit is 2 \(gateway\.delegate_depth\)"):
        await delegate(world, "hang 3", session=second["session"], mode="async")
    assert (await delegate(world, "say beside it"))["text"] == "beside it"


async def test_how_deep_a_task_is_outlives_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob")
        task = await delegate(world, "hang on", mode="async")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left, delegate_depth=1) as world:
        await world.events()
        assert world.launcher.running("hang on").running is not None
        with pytest.raises(NestedSaturated, match="2 delegations deep"):
            await delegate(world, "say it", session=task["session"])
        assert (await delegate(world, "say it", session="bob"))["text"] == "it"


@pytest.mark.world(delegate_fan_out=1)
async def test_a_session_has_only_so_many_tasks_at_once_and_one_that_ended_or_was_refused_makes_room(
    world: World,
) -> None:
    with pytest.raises(UsageError, match="nobody"):
        await world.call("delegate", session="alice", agent="nobody", task="say it")
    await delegate(world, "hang", mode="async")
    with pytest.raises(NestedSaturated, match=r"1 delegated tasks .* \(gateway\.delegate_fan_out\)") as refused:
        await delegate(world, "say it")
    assert refused.value.retry_after is not None
    assert (await delegate(world, "say another's", session="bob"))["text"] == "another's"
    await world.events()
    world.launcher.running("hang").finish()
    assert len(await world.events("delegate_done")) == 1
    assert (await delegate(world, "say it"))["text"] == "it"


@pytest.mark.world(workers=1)
async def test_a_task_whose_giver_holds_the_only_worker_is_refused_at_once_instead_of_waiting_for_itself(
    world: World,
) -> None:
    await world.begin("hang")
    started = trio.current_time()
    outcome = await delegate(world, "say it")
    assert (outcome["status"], outcome["error"]["code"]) == ("error", "nested_saturated")
    assert trio.current_time() == started


@pytest.mark.world(outcome_age=600)
async def test_the_session_of_a_task_is_forgotten_when_its_outcome_is(world: World) -> None:
    task = (await delegate(world, "say it"))["session"]
    spoken_in = (await delegate(world, "say it"))["session"]
    busy = (await delegate(world, "background"))["session"]
    await world.ask("say more", spoken_in)
    await trio.sleep(599)
    assert {task, spoken_in, busy} <= {entry.key for entry in world.gateway.sessions}
    await trio.sleep(2)
    assert {entry.key for entry in world.gateway.sessions} == {spoken_in, busy}
    (worker,) = [each for each in world.launcher.workers if each.background]
    worker.tell("background", running=0)
    await trio.sleep(601)
    assert {entry.key for entry in world.gateway.sessions} == {spoken_in}


async def test_sessions_of_tasks_that_an_earlier_life_has_left_are_forgotten_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, outcome_age=600) as world:
        await delegate(world, "say it")
        await world.ask("say mine", "subagent:of-a-person")
    async with open_world(tmp_path, store=store.after_a_stop(), outcome_age=600) as world:
        assert len(world.gateway.sessions) == 2
        await trio.sleep(601)
        assert [entry.key for entry in world.gateway.sessions] == ["subagent:of-a-person"]


async def test_a_task_works_in_the_directory_of_the_session_that_gave_it_also_in_the_next_life(
    tmp_path: Path,
) -> None:
    place, store = tmp_path / "project", WholeStore()
    place.mkdir()
    async with open_world(tmp_path / "data", store=store) as world:
        await world.call("sessions.open", cwd=str(place), session="editors")
        task = await delegate(world, "say it", session="editors")
        deeper = await delegate(world, "say it", session=task["session"])
        places = [(await world.call("sessions.get", session=each["session"]))["cwd"] for each in (task, deeper)]
        assert places == [str(place.resolve())] * 2
        profile = await world.gateway.profile_of(deeper["session"])
        assert profile is not None
        assert profile.cwd == places[0]
        other = await delegate(world, "say it")
        assert (await world.call("sessions.get", session=other["session"]))["cwd"] != places[0]
    async with open_world(tmp_path / "data", store=store.after_a_crash()) as later:
        assert (await later.call("sessions.get", session=task["session"]))["cwd"] == places[0]
