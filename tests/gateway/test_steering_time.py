"""A run that was steered into a longer turn keeps its own time."""

import pytest
import trio

from tests.gateway.world import World


async def test_a_steered_run_ends_when_its_own_time_is_over_and_its_turn_goes_on(world: World) -> None:
    long = await world.begin("hang")
    short = await world.begin("and this", timeout=5)
    assert short.record.started_at is not None, "it was put into the turn"
    before = trio.current_time()
    outcome = await short.wait()
    assert (outcome.status, outcome.error and outcome.error.code) == ("error", "request_timeout")
    assert trio.current_time() - before <= 5
    assert long.is_live
    await world.call("abort", session="alice")
    await long.wait()
    world.assert_at_rest()


async def test_a_steer_whose_time_was_over_is_not_taken_back_when_the_worker_throws_it_away(world: World) -> None:
    long = await world.begin("hang")
    world.launcher.running("hang").ignores_steers = True
    short = await world.begin("never answered", timeout=5)
    assert (await short.wait()).status == "error"
    await world.call("abort", session="alice")
    await long.wait()
    world.assert_at_rest()


@pytest.mark.world(workers=1)
async def test_a_steered_run_that_came_back_keeps_the_time_it_had(world: World) -> None:
    long = await world.begin("hang")
    world.launcher.running("hang").refuses_steers = True
    short = await world.begin("refused", timeout=5)
    before = trio.current_time()
    outcome = await short.wait()
    assert (outcome.error and outcome.error.code, trio.current_time() - before <= 5) == ("request_timeout", True)
    await world.call("abort", session="alice")
    await long.wait()
    world.assert_at_rest()
