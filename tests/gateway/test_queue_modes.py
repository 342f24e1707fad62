"""What becomes of messages while their session is busy, end to end: every mode, every limit, every caller told."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolSaturated, UsageError
from gateway.runs.run import Run, RunOutcome
from gateway.settings import GatewaySettings, Overflow, QueueMode, QueueSettings
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import World, open_world, telegram


async def _hanging(world: World, session: str = "alice") -> GatewayWorker:
    await world.begin("hang", session, queue="followup")
    return next(worker for worker in world.launcher.workers if worker.running is not None)


async def _outcomes(*runs: Run) -> list[RunOutcome]:
    with trio.fail_after(3600):
        return [await run.wait() for run in runs]


def assert_code(outcome: RunOutcome, code: str, words: str) -> None:
    assert outcome.status == "error"
    assert outcome.error is not None
    assert (outcome.error.code, words in outcome.error.message) == (code, True)


# --- follow-ups -------------------------------------------------------------------------------------------------------


@pytest.mark.world(queue={"mode": "followup"})
async def test_follow_ups_have_a_turn_each_in_their_order(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(f"say {number}") for number in range(3)]
    assert worker.steers == []
    worker.finish()
    assert [outcome.text for outcome in await _outcomes(*runs)] == ["0", "1", "2"]
    assert trio.current_time() == 0


# --- collect ----------------------------------------------------------------------------------------------------------


@pytest.mark.world(queue={"mode": "collect", "debounce": 0.5})
async def test_collected_messages_become_one_prompt_and_every_caller_has_its_outcome(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(text) for text in ("one", "two", "three")]
    worker.finish()
    outcomes = await _outcomes(*runs)
    assert len(world.launcher.prompts) == 2
    merged = world.launcher.prompts[1]
    assert merged.startswith("[3 messages came in while you were busy, in this order.")
    assert merged.endswith("[1 of 3]\none\n\n[2 of 3]\ntwo\n\n[3 of 3]\nthree")
    assert {outcome.text for outcome in outcomes} == {f"hang|{merged}"}
    assert [outcome.run_id for outcome in outcomes] == [run.request.run_id for run in runs]
    assert {outcome.status for outcome in outcomes} == {"ok"}
    events = await world.events("run:start", "done")
    ids = {run.request.run_id for run in runs}
    for type_ in ("run:start", "done"):
        assert {event["run_id"] for event in events if event["type"] == type_} >= ids


@pytest.mark.world(queue={"mode": "collect", "debounce": 0.5})
async def test_messages_behind_a_turn_that_fails_are_collected_all_the_same(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(text) for text in ("one", "two")]
    worker.die()
    assert {outcome.status for outcome in await _outcomes(*runs)} == {"ok"}
    assert "[2 of 2]\ntwo" in world.launcher.prompts[1]


@pytest.mark.world(queue={"mode": "collect", "debounce": 0})
async def test_an_error_of_a_merged_turn_is_told_to_every_caller(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(text) for text in ("one", "two")]
    world.launcher.slow = True
    worker.finish()
    await wait_all_tasks_blocked()
    worker.die()
    for outcome in await _outcomes(*runs):
        assert_code(outcome, "worker_exited", "signal 9")


# --- interrupt --------------------------------------------------------------------------------------------------------


async def test_an_interrupting_message_takes_the_place_of_the_turn_and_of_all_that_waits(world: World) -> None:
    await _hanging(world)
    waiting = [await world.begin(f"say {number}", queue="followup") for number in range(2)]
    newest = await world.begin("say newest", queue="interrupt")
    assert (await newest.wait()).text == "newest"
    for outcome in await _outcomes(*waiting):
        assert_code(outcome, "aborted", "took this one's place")
    assert world.launcher.prompts == ["hang", "say newest"]
    world.assert_at_rest()


async def test_the_interrupted_turn_keeps_what_it_has_said(world: World) -> None:
    first = await world.begin("hang")
    await world.begin("say newest", queue="interrupt")
    outcome = await first.wait()
    assert_code(outcome, "aborted", "a newer message")
    assert (outcome.text, outcome.reason) == ("so far", "interrupted")


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.world(queue={"mode": "followup", "cap": 1})
async def test_of_too_many_messages_the_oldest_leave_a_line_and_every_caller_is_answered(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(text) for text in ("x" * 300, "second", "third")]
    worker.finish()
    outcomes = await _outcomes(*runs)
    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert len({outcome.text for outcome in outcomes}) == 1
    assert world.launcher.prompts[1].split("\n\n")[1:] == [
        f"[Dropped: 2]\n- {'x' * 159}…\n- second",
        "[In full]\nthird",
    ]
    world.assert_at_rest()


@pytest.mark.world(queue={"mode": "followup", "cap": 1, "overflow": "old"})
async def test_with_the_policy_old_the_oldest_message_is_refused_and_its_caller_told(world: World) -> None:
    worker = await _hanging(world)
    old, new = [await world.begin(f"say {text}") for text in ("old", "new")]
    assert_code(await old.wait(), "saturated", "gave way")
    [done] = [event for event in await world.events("done") if event["run_id"] == old.request.run_id]
    assert done["data"]["reason"] == "error"
    worker.finish()
    assert (await new.wait()).text == "new"


@pytest.mark.world(queue={"mode": "followup", "cap": 1, "overflow": "new"})
async def test_with_the_policy_new_a_message_too_many_is_refused_at_once_and_leaves_no_trace(world: World) -> None:
    worker = await _hanging(world)
    first = await world.begin("say first")
    with pytest.raises(PoolSaturated, match=r"gateway\.queue\.cap") as refused:
        await world.send("say second", run="k2")
    assert refused.value.retry_after == 1
    assert "k2" not in {event["run_id"] for event in await world.events("run:accepted")}
    worker.finish()
    assert (await first.wait()).text == "first"
    assert (await world.ask("say again", run="k2")).text == "again"


@pytest.mark.world(queue={"lanes": {"cron": 1}})
async def test_a_named_lane_bounds_turns_over_all_sessions(world: World) -> None:
    first = await world.begin("hang", "job 1", lane="cron")
    second = await world.begin("say second", "job 2", lane="cron")
    assert (await world.ask("say free", "bob")).text == "free"
    assert world.launcher.prompts == ["hang", "say free"]
    lanes = {lane["name"]: lane for lane in (await world.call("status"))["gateway"]["lanes"]["lanes"]}
    assert (lanes["cron"]["running"], lanes["cron"]["waiting"], lanes["cron"]["limit"]) == (1, 1, 1)
    world.launcher.running("hang").die()
    assert [outcome.status for outcome in await _outcomes(first, second)] == ["error", "ok"]


@pytest.mark.world(queue={"mode": "followup", "cap": 5})
async def test_new_limits_hold_for_what_comes_and_lose_nobody(world: World) -> None:
    worker = await _hanging(world)
    runs = [await world.begin(f"say {number}") for number in range(3)]
    world.gateway.reconfigure(
        GatewaySettings(queue=QueueSettings(cap=1, overflow=Overflow.NEW)), world.gateway.profile_cache.parts
    )
    with pytest.raises(PoolSaturated, match=r"gateway\.queue\.cap"):
        await world.send("say 3", queue="followup")
    worker.finish()
    assert [outcome.text for outcome in await _outcomes(*runs)] == ["0", "1", "2"]


# --- which mode counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "used"),
    [
        ({}, "steer"),
        ({"settings": "followup"}, "followup"),
        ({"settings": "followup", "channel": "collect"}, "collect"),
        ({"settings": "followup", "channel": "collect", "session": "interrupt"}, "interrupt"),
        ({"settings": "followup", "channel": "collect", "session": "interrupt", "message": "steer"}, "steer"),
    ],
)
async def test_the_nearest_word_on_the_mode_counts(
    tmp_path: Path, autojump_clock: MockClock, words: dict[str, str], used: str
) -> None:
    channels = {"telegram": words["channel"]} if "channel" in words else {}
    async with open_world(tmp_path, queue={"mode": words.get("settings", "steer"), "channels": channels}) as world:
        if "session" in words:
            await world.ask(f"/queue {words['session']}", source=telegram())
        run = await world.send("hello", source=telegram(), **({"queue": used} if "message" in words else {}))
        assert run.request.mode.value == used
        accepted = (await world.events("run:accepted"))[-1]
        assert accepted["data"] == {"lane": "main", "priority": 10, "mode": used, "text": "hello"}


async def test_a_mode_with_a_text_holds_for_that_message_only(world: World) -> None:
    run = await world.send("/queue followup say hello")
    assert (run.request.mode, run.request.text) == (QueueMode.FOLLOWUP, "say hello")
    assert (await run.wait()).text == "hello"
    assert (await world.send("/queue followup hi", queue="collect")).request.mode is QueueMode.COLLECT
    assert (await world.send("plain")).request.mode is QueueMode.STEER


async def test_a_mode_that_is_none_is_refused(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match="sideways"):
            await world.send("hello", queue="sideways")
