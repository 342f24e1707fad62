"""What the shell watches over while workers live: new limits reach them, and what they print is told."""

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from errors import UsageError
from pool import stimuli
from pool.settings import PoolSettings
from pool.shell import Pool
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, make_pool, say
from wire.units import Seconds


async def test_new_times_reach_workers_that_live_already(autojump_clock: MockClock) -> None:
    settings = PoolSettings(min=0, max=2)
    async with make_pool(MemoryLauncher()) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            turn = lease.prompt("hang")
            await turn.next_batch()
            pool.submit(stimuli.SettingsChanged(PoolSettings(min=0, max=2, turn_stall=Seconds(40))))
            result = await turn.wait()
        assert result.stop_reason == "aborted"
        assert trio.current_time() < settings.turn_stall


async def test_lines_that_were_no_messages_are_counted_as_they_come_and_told_when_their_worker_ends(
    autojump_clock: MockClock,
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    pool = Pool(
        PoolSettings(min=0, max=1),
        launcher=MemoryLauncher(),
        on_event=lambda event, data: told.append((event, data)),
        rng=random.Random(1),
        memory_bytes=1 << 40,
    )
    async with pool:
        assert await say(pool, "s", "garbage") == "garbage"
        assert [worker.stray_lines for worker in pool.statistics().workers] == [1]
    (contaminated,) = [data for event, data in told if event == "worker_contaminated"]
    assert contaminated == {"worker": "w1", "lines": 1, "last": "this is no message"}


async def test_a_drained_pool_takes_work_again_when_it_is_resumed(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        await say(pool, "s", "before")
        assert await pool.drain(timeout=60)
        pool.submit(stimuli.Resume())
        assert await say(pool, "s", "after") == "before|after"


@pytest.mark.parametrize("priority", [1001, -1001, 10**400])
async def test_a_priority_beyond_reason_is_refused_and_leaves_nothing(autojump_clock: MockClock, priority: int) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        with pytest.raises(UsageError, match="priority"):
            await pool.acquire("s", DEFAULT, priority=priority)
        pool._machine.validate()
        assert pool.statistics().sessions == ()
