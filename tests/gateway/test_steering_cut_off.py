"""Messages put into a turn that is ended early: by an abort, its time, a death, the end of the gateway."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from tests.gateway.world import WholeStore, World, open_world


async def test_an_abort_ends_steered_runs_with_the_turn_and_leaks_nothing_into_the_next(world: World) -> None:
    worker = await world.hanging(run="first")
    taken = await world.begin("left")
    worker.consume()
    untaken = await world.begin("right")
    await world.call("abort", session="alice")
    for run in (world.run("first"), taken, untaken):
        assert (await run.wait()).reason == "interrupted"
    await world.ask("say next")
    assert world.launcher.prompts == ["hang", "say next"]
    assert worker.steers == []
    world.assert_at_rest()


async def test_an_abort_of_a_steered_run_ends_that_run_alone(world: World) -> None:
    worker = await world.hanging(run="first")
    await world.begin("left", run="second")
    assert (await world.call("abort", session="alice", run="second"))["aborted"] is True
    outcome = await world.run("second").wait()
    assert (outcome.reason, outcome.error and outcome.error.code) == ("interrupted", "aborted")
    assert (await world.call("abort", session="alice", run="second"))["aborted"] is False
    assert world.run("first").is_live
    worker.consume()
    worker.finish()
    assert (await world.run("first").wait()).text == "done"
    world.assert_at_rest()


async def test_an_abort_of_a_collected_run_ends_that_run_alone_and_the_leaders_all(world: World) -> None:
    for number in range(4):
        await world.begin("hang", run=f"k{number}", queue="collect")
    world.launcher.slow = True
    world.launcher.running("hang").finish()
    await trio.sleep(5)  # what is collected waits for more
    late = await world.begin("left", run="steered")
    await world.call("abort", session="alice", run="k2")
    assert (await world.run("k2").wait()).reason == "interrupted"
    assert world.run("k1").is_live
    await world.call("abort", session="alice", run="k1")
    outcomes = [await run.wait() for run in (world.run("k1"), world.run("k3"), late)]
    assert [outcome.reason for outcome in outcomes] == ["interrupted"] * 3
    world.assert_at_rest()


@pytest.mark.parametrize("how", ["time", "abort"])
async def test_a_steer_that_is_under_way_when_its_turn_is_ended_ends_with_it(world: World, how: str) -> None:
    """The worker neither answers the steer nor heeds the abort, and is killed."""
    leader = await world.begin("stubborn", timeout=10)
    world.launcher.running("stubborn").ignores_steers = True
    steered = await world.begin("left")
    if how == "abort":
        await world.call("abort", session="alice")
    with trio.fail_after(60):
        outcomes = [await run.wait() for run in (leader, steered)]
    assert [outcome.reason for outcome in outcomes] == ["interrupted" if how == "abort" else "timeout"] * 2
    assert (await world.ask("say next")).text == "next"
    assert world.launcher.prompts == ["stubborn", "say next"]
    world.assert_at_rest()


async def test_a_steer_that_is_under_way_can_be_aborted(world: World) -> None:
    worker = await world.hanging(run="first")
    worker.ignores_steers = True
    await world.begin("left", run="second")
    assert (await world.call("abort", session="alice", run="second"))["aborted"] is True
    with trio.fail_after(60):
        assert (await world.run("second").wait()).reason == "interrupted"
    assert trio.current_time() == 0
    worker.finish()
    await world.run("first").wait()
    world.assert_at_rest()


async def test_a_worker_that_dies_with_a_steer_it_took_and_the_model_never_saw_leaves_it_to_the_next(
    world: World,
) -> None:
    worker = await world.hanging(run="first")
    seen = await world.begin("say seen")
    worker.consume()
    unseen = await world.begin("say unseen")
    worker.die()
    assert (await world.run("first").wait()).status == "error"
    assert (await seen.wait()).status == "error"
    assert (await unseen.wait()).text == "unseen"
    assert world.launcher.prompts == ["hang", "say unseen"]
    world.assert_at_rest()


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_steer_at_the_very_moment_of_the_turns_end_is_not_lost(world: World, *, ignores: bool) -> None:
    worker = await world.hanging(run="first")
    worker.ignores_steers = ignores
    worker.finish("end")
    steered = await world.send("say late")
    with trio.fail_after(120):
        assert (await steered.wait()).text == "late"
    assert (await world.run("first").wait()).text == "end"
    world.assert_at_rest()


async def test_the_end_of_the_gateway_while_a_steer_is_under_way_leaves_it_told(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        worker = await world.hanging(run="first")
        worker.ignores_steers = True
        await world.begin("left", run="second")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        outcome = await world.run("second").wait()
        assert outcome.error is not None
        assert outcome.error.code == "interrupted"


async def test_time_for_a_steer_that_became_a_follow_up_runs_on(world: World) -> None:
    worker = await world.hanging(run="first")
    worker.refuses_steers = True
    run = await world.begin("left", timeout=5)
    assert (await run.wait()).reason == "timeout"
    assert trio.current_time() == 5
    worker.finish()
    await world.run("first").wait()
    world.assert_at_rest()


# --- what may have been seen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("safe", [False, True])
async def test_a_steer_that_a_dying_worker_may_have_acted_upon_is_repeated_only_where_it_may_be(
    world: World, *, safe: bool
) -> None:
    worker = await world.hanging(run="first")
    worker.ignores_steers, worker.tells_queue = True, False
    steered = await world.begin("say again", retry_safe=safe)
    worker.die()
    outcome = await steered.wait()
    assert outcome.text == ("again" if safe else "")
    assert world.launcher.prompts == (["hang", "say again"] if safe else ["hang"])
    if not safe:
        assert outcome.error is not None
        assert outcome.error.code == "worker_exited"
    world.assert_at_rest()


async def test_of_steers_the_last_are_those_that_were_not_seen_also_when_one_was_never_answered(world: World) -> None:
    worker = await world.hanging(run="first")
    seen = await world.begin("say seen")
    worker.consume()
    worker.ignores_steers = True
    unseen = await world.begin("say unseen")
    worker.die()
    assert (await seen.wait()).status == "error"
    assert (await unseen.wait()).text == "unseen"
    assert world.launcher.prompts == ["hang", "say unseen"]


async def test_what_one_worker_said_of_its_steers_does_not_hold_for_the_next(world: World) -> None:
    await world.begin("hang", run="first", retry_safe=True)
    unseen = await world.begin("say unseen", retry_safe=True)
    world.launcher.running("hang").die()
    await wait_all_tasks_blocked()
    worker = world.launcher.running("hang")
    worker.tells_queue = False
    taken = await world.begin("say taken", priority=9)
    worker.finish("end")
    assert [(await run.wait()).text for run in (taken, unseen)] == ["end", "unseen"]
    assert world.launcher.prompts == ["hang", "hang", "say unseen"]


async def test_a_message_for_a_turn_that_is_being_aborted_has_a_turn_of_its_own(world: World) -> None:
    await world.begin("stubborn")
    await world.call("abort", session="alice")
    await wait_all_tasks_blocked()
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()


async def test_a_turn_that_has_ended_takes_nothing_while_it_waits_for_a_steers_answer(world: World) -> None:
    worker = await world.hanging(run="first")
    worker.ignores_steers = True
    await world.begin("left")
    worker.finish()
    await wait_all_tasks_blocked()
    with pytest.raises(UsageError, match="takes messages now"):
        await world.call("steer", session="alice", text="right")
