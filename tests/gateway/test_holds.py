"""A worker that a caller holds: the session is theirs until they give it back or leave."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import AcquireTimeout, NoWorker, PoolError, PoolSaturated, UsageError
from tests.gateway.callers import RecordingCaller
from tests.gateway.world import World


@asynccontextmanager
async def _connection() -> AsyncIterator[RecordingCaller]:
    """A front end that leaves at the end of the block."""
    async with trio.open_nursery() as nursery:
        yield RecordingCaller(nursery)
        nursery.cancel_scope.cancel()


async def _hold(world: World, **params: Any) -> str:
    return str((await world.call("acquire", session="alice", **params))["hold"])


async def _begin(world: World, method: str, **params: Any) -> list[Any]:
    """Let a request about alice's session go as far as it comes by itself: its answer or its error, once there."""
    answers: list[Any] = []

    async def call() -> None:
        try:
            answers.append(await world.call(method, session="alice", **params))
        except PoolError as exc:
            answers.append(exc)

    world.nursery.start_soon(call)
    await wait_all_tasks_blocked()
    return answers


async def test_messages_wait_until_the_hold_is_given_back(world: World) -> None:
    view = await world.call("acquire", session="alice")
    assert {**view, "hold": ""} == {"hold": "", "session": "alice", "worker": "w1", "level": "exact", "waited": 0}
    assert (await world.call("sessions.get", session="alice"))["transcript"] == "/t/0"
    runs = [await world.begin(f"say {number}", queue="followup") for number in range(2)]
    assert world.launcher.prompts == []
    assert await world.call("release", hold=view["hold"]) == {"hold": view["hold"], "session": "alice"}
    assert [(await run.wait()).text for run in runs] == ["0", "1"]
    world.assert_at_rest()


@pytest.mark.parametrize("mode", ["steer", "interrupt", "collect"])
async def test_no_mode_gets_into_a_held_session(world: World, mode: str) -> None:
    hold = await _hold(world)
    run = await world.begin("say later", queue=mode)
    assert (run.is_live, world.launcher.prompts) == (True, [])
    assert (await world.call("abort", session="alice"))["aborted"] is False
    await world.call("release", hold=hold)
    assert (await run.wait()).text == "later"


async def test_a_hold_waits_for_the_running_turn_and_for_what_was_there_before(world: World) -> None:
    await world.begin("hang")
    await world.begin("say before", queue="followup")
    held = await _begin(world, "acquire")
    after = await world.begin("say after", queue="followup")
    assert held == []
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == ["hang", "say before"]
    await world.call("release", hold=held[0]["hold"])
    await after.wait()


# --- prompts on it ----------------------------------------------------------------------------------------------------


async def test_its_owner_prompts_the_held_worker_in_one_conversation(world: World) -> None:
    await world.ask("one")
    hold = await _hold(world)
    waiting = await world.begin("later", queue="followup")
    outcome = await world.call("prompt", text="two", session="alice", hold=hold, run="k1")
    assert [outcome[name] for name in ("status", "text", "worker", "run_id")] == ["ok", "one|two", "w1", "k1"]
    types = [event["type"] for _, data in world.caller.pushed for event in data["events"]]
    assert types == ["run:accepted", "run:start", "text_chunk", "done"]
    again = await world.call("prompt", text="two", session="alice", hold=hold, run="k1")
    assert again["text"] == "one|two"
    await world.call("release", hold=hold)
    assert (await waiting.wait()).text == "one|two|later"


async def test_a_turn_on_a_hold_has_its_time_and_can_be_aborted(world: World) -> None:
    hold = await _hold(world)
    outcome = await world.call("prompt", text="hang", session="alice", hold=hold, timeout=5)
    assert (outcome["reason"], trio.current_time()) == ("timeout", 5)
    answers = await _begin(world, "prompt", text="hang", hold=hold, run="k1")
    assert world.state() == "WORKING"
    assert (await world.call("abort", session="alice", run="k1"))["aborted"] is True
    await wait_all_tasks_blocked()
    assert [answer["reason"] for answer in answers] == ["interrupted"]
    assert (await world.call("prompt", text="say on", session="alice", hold=hold))["text"] == "on"


async def test_a_hold_given_back_in_mid_turn_ends_the_turn(world: World) -> None:
    hold = await _hold(world)
    answers = await _begin(world, "prompt", text="hang", hold=hold)
    await world.call("release", hold=hold)
    await wait_all_tasks_blocked()
    assert [answer["reason"] for answer in answers] == ["interrupted"]
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()


async def test_a_held_worker_that_dies_fails_the_turn_and_the_hold_can_be_given_back(world: World) -> None:
    hold = await _hold(world)
    outcome = await world.call("prompt", text="die", session="alice", hold=hold)
    assert outcome["error"]["code"] == "worker_exited"
    again = await world.call("prompt", text="say on", session="alice", hold=hold)
    assert again["status"] == "error"
    await world.call("release", hold=hold)
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()


async def test_an_approval_on_a_held_worker_finds_it(world: World) -> None:
    hold = await _hold(world)
    answers = await _begin(world, "prompt", text="ask", hold=hold)
    assert world.state() == "PAUSED"
    await world.call("decide", call_id="c1", decision="allow")
    await wait_all_tasks_blocked()
    assert [answer["text"] for answer in answers] == ["allow"]


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_connection_frees_the_session(world: World) -> None:
    async with _connection() as caller:
        view = await world.call("acquire", caller, session="alice")
        waiting = await world.begin("say later")
        assert waiting.is_live
    assert (await waiting.wait()).text == "later"
    with pytest.raises(UsageError, match="given back"):
        await world.call("release", caller, hold=view["hold"])
    assert world.gateway.pool.statistics().pool.leased == 0
    world.assert_at_rest()


async def test_a_caller_that_leaves_while_it_waits_for_a_hold_waits_no_more(world: World) -> None:
    await world.begin("hang")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: world.call("acquire", RecordingCaller(nursery), session="alice"))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert world.gateway.scheduler.lanes.depth("alice") == 0
    world.launcher.running("hang").finish()
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()


async def test_a_hold_belongs_to_whoever_took_it(world: World) -> None:
    hold = await _hold(world)
    stranger = RecordingCaller(world.nursery, principal="uid:2")
    for method, params in (("release", {}), ("prompt", {"text": "x", "session": "alice"})):
        with pytest.raises(UsageError, match="there is no hold"):
            await world.call(method, stranger, hold=hold, **params)
    await world.call("release", hold=hold)
    for _ in range(2):
        with pytest.raises(UsageError, match="there is no hold"):
            await world.call("release", hold=hold)
        await wait_all_tasks_blocked()


async def test_a_message_for_another_session_is_no_message_for_the_held_one(world: World) -> None:
    hold = await _hold(world)
    with pytest.raises(UsageError, match="this hold is on session alice, not on bob"):
        await world.call("prompt", hold=hold, session="bob", text="for bob alone")
    assert world.launcher.prompts == []


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "kind", "why"),
    [
        ({"agent": "nobody"}, UsageError, "nobody"),
        ({"role": "nothing"}, UsageError, "nothing"),
        ({"session": "agent:"}, UsageError, "no session key"),
        ({"role": "writer"}, PoolError, "boom|start"),
        ({"spawn": False}, NoWorker, "may start none, although there is room"),
    ],
)
async def test_a_hold_that_cannot_be_had_leaves_the_session_free(
    world: World, wrong: dict[str, Any], kind: type[PoolError], why: str
) -> None:
    world.launcher.broken.add("writer")
    with trio.fail_after(600), pytest.raises(kind, match=why):
        await world.call("acquire", **{"session": "alice", "timeout": 300, **wrong})
    assert (await world.ask("say next", agent="main", role="default")).text == "next"
    world.assert_at_rest()


@pytest.mark.world(workers=1)
async def test_a_hold_waits_no_longer_than_it_says_for_the_session_or_for_a_worker(world: World) -> None:
    await world.begin("hang")
    for session, why, end in (("alice", "was busy for all of 5 s", 5), ("bob", "", 10)):
        with pytest.raises(AcquireTimeout, match=why or None):
            await world.call("acquire", session=session, timeout=5)
        assert trio.current_time() == end
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    world.assert_at_rest()


@pytest.mark.world(workers=1)
async def test_a_hold_waits_for_session_and_worker_together_no_longer_than_it_says(world: World) -> None:
    run = await world.begin("hang")
    await world.begin("hang", "bob")
    answers = await _begin(world, "acquire", timeout=5)
    await trio.sleep(4)
    world.launcher.running("hang").finish()
    await trio.sleep(0.9)
    assert (answers, run.is_live) == ([], False)
    await trio.sleep(0.2)
    assert isinstance(answers[0], AcquireTimeout)


async def test_a_hold_without_a_limit_of_its_own_has_the_pools_and_is_listed_while_it_waits(world: World) -> None:
    await _hold(world)
    await trio.sleep(1)
    failed = await _begin(world, "acquire")
    await trio.sleep(2)
    holds = (await world.call("status"))["gateway"]["holds"]
    assert (holds["granted"], holds["waiting"]) == (1, 1)
    rows = [(row["session"], row["worker"], row["age"], row["expires_in"]) for row in holds["oldest"]]
    assert rows == [("alice", "w1", 3, None), ("alice", None, 2, 28)]
    await trio.sleep(27.9)
    assert failed == []
    await trio.sleep(0.2)
    assert [type(error) for error in failed] == [AcquireTimeout]
    assert "was busy for all of 30 s" in str(failed[0])


@pytest.mark.world(queue={"cap": 1, "overflow": "new"})
async def test_a_hold_that_is_refused_a_place_or_whose_place_is_cleared_is_told_so(world: World) -> None:
    await world.begin("hang")
    cleared = await _begin(world, "acquire")
    with pytest.raises(PoolSaturated, match=r"gateway\.queue\.cap"):
        await world.call("acquire", session="alice")
    await world.ask("/stop")
    await wait_all_tasks_blocked()
    assert [isinstance(error, PoolSaturated) and "cleared" in str(error) for error in cleared] == [True]
    world.assert_at_rest()


async def test_a_hold_has_the_sessions_own_model(world: World) -> None:
    await world.ask("/model big")
    await _hold(world)
    assert [worker.model for worker in world.launcher.workers] == ["big"]
