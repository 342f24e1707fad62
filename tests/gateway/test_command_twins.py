"""A slash command given twice under one key: whatever becomes of the first, the second is answered."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolSaturated
from tests.gateway.world import World, open_world


async def _reset(world: World) -> None:
    await world.call("prompt", text="/reset", session="alice", run="k1")


async def test_the_twin_of_a_command_is_answered_with_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        hold = await world.call("acquire", session="alice")
        async with trio.open_nursery() as twins:
            for _ in range(2):
                twins.start_soon(_reset, world)
            await wait_all_tasks_blocked()
            await world.call("release", hold=hold["hold"])
        assert len(await world.events("session_reset")) == 1


async def test_the_twin_of_a_command_whose_caller_left_is_told_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        hold = await world.call("acquire", session="alice")
        async with trio.open_nursery() as connection:
            connection.start_soon(_reset, world)
            await wait_all_tasks_blocked()
            twin = await world.send("/reset", run="k1")
            connection.cancel_scope.cancel()
        with trio.fail_after(1):
            outcome = await twin.wait()
        assert outcome.error is not None
        assert (outcome.error.code, outcome.reason) == ("aborted", "interrupted")
        await world.call("release", hold=hold["hold"])
        assert (await world.ask("/reset", run="k1")).status == "ok"  # the key is free again


async def test_the_twin_of_a_command_that_fails_is_told_the_same(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        hold = await world.call("acquire", session="alice")
        async with trio.open_nursery() as connection:
            connection.start_soon(_fails, world)
            await wait_all_tasks_blocked()
            twin = await world.send("/reset", run="k1")
            world.gateway.scheduler.clear("alice")
        outcome = await twin.wait()
        assert outcome.error is not None
        assert outcome.error.code == "saturated"
        await world.call("release", hold=hold["hold"])


async def _fails(world: World) -> None:
    with pytest.raises(PoolSaturated):
        await _reset(world)
