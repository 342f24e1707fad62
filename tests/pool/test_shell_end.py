"""How turns, workers, leases and the pool itself come to their end, on a virtual clock."""

import gc
import weakref

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from errors import AcquireTimeout, PoolClosed, PoolError, UsageError, WorkerError, WorkerExited
from pool import stimuli
from pool.lease import PromptStream
from pool.settings import PoolSettings
from pool.shell import Pool
from pool.stimuli import FailureKind, StopReason
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, say
from wire.units import Seconds


async def test_a_lease_keeps_of_its_turns_only_how_long_they_took(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        lease = await pool.acquire("s", DEFAULT)

        async def run(text: str) -> weakref.ref[PromptStream]:
            stream = lease.prompt(text)
            await stream.wait()
            return weakref.ref(stream)

        turns = [await run(text) for text in ("one", "two", "three")]
        gc.collect()
        assert [turn() for turn in turns] == [None, None, None]
        await pool.release(lease)
        await pool.release(lease)
        assert pool.statistics().latency.turn.count == 3
        assert pool.statistics().counters.releases == 1


async def test_a_worker_that_does_not_end_its_turn_when_aborted_is_never_used_again(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            async for _ in lease.prompt("deaf"):
                break
        assert await say(pool, "s", "next", timeout=60) == "next"
    assert launcher.starts[:2] == ["w1", "w2"]


async def test_a_worker_that_dies_fails_its_turn_and_the_session_goes_on_elsewhere(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        await say(pool, "s", "before")
        with pytest.raises(WorkerExited, match="killed by signal 9"):
            await say(pool, "s", "die")
        assert await say(pool, "s", "after") == "before|after"
    assert launcher.starts == ["w1", "w2"]


async def test_a_turn_on_a_node_that_is_lost_ends_with_that_and_its_session_goes_on(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        await say(pool, "s", "before")
        async with pool.lease("s", DEFAULT) as lease:
            stream = lease.prompt("hang")
            await stream.next_batch()
            lost = WorkerExited("worker w1 ended (its node gpu-2 was lost)", worker="w1")
            pool.submit(stimuli.WorkerFailed("w1", FailureKind.LOST, lost))
            with pytest.raises(WorkerExited, match="its node gpu-2 was lost"):
                await stream.wait()
        assert await say(pool, "s", "after") == "before|after"
        assert pool.statistics().counters.exits == {"lost": 1}


async def test_stop_worker_fails_the_turn_and_an_unknown_worker_is_refused(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        with pytest.raises(UsageError):
            pool.submit(stimuli.StopWorker("w99"))
        async with pool.lease("s", DEFAULT) as lease:
            stream = lease.prompt("hang")
            await stream.next_batch()
            pool.submit(stimuli.StopWorker("w1"))
            with pytest.raises(WorkerExited):
                await stream.wait()


async def test_draining_lets_turns_end_and_takes_nothing_new(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        lease = await pool.acquire("s", DEFAULT)
        emptied: list[bool] = []
        drained = trio.Event()

        async def drain() -> None:
            emptied.append(await pool.drain(timeout=60))
            drained.set()

        nursery.start_soon(drain)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(PoolClosed):
            await pool.acquire("t", DEFAULT)
        assert (await lease.prompt("last words").wait()).text == "last words"
        await pool.release(lease)
        with trio.fail_after(30):
            await drained.wait()
        assert emptied == [True]


async def test_a_drain_waits_for_turns_as_long_as_the_settings_say_also_after_they_have_changed(
    autojump_clock: MockClock,
) -> None:
    async with make_pool(MemoryLauncher(), drain_timeout=Seconds(7)) as pool:
        await pool.acquire("s", DEFAULT)
        started = trio.current_time()
        assert not await pool.drain()
        assert trio.current_time() - started == 7.0
        pool.submit(stimuli.SettingsChanged(PoolSettings(min=0, max=2, drain_timeout=Seconds(2))))
        assert not await pool.drain()
        assert trio.current_time() - started == 9.0


async def test_closing_ends_a_drain_at_once_and_two_drains_end_together(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    ends: list[float] = []

    async def drain(pool: Pool) -> None:
        assert await pool.drain(timeout=60)
        ends.append(trio.current_time())

    start = trio.current_time()
    async with make_pool(MemoryLauncher()) as pool:
        await pool.acquire("s", DEFAULT)
        nursery.start_soon(drain, pool)
        nursery.start_soon(drain, pool)
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ends) == 2
    assert max(ends) - start < 60


async def test_a_worker_that_ends_as_it_is_granted_fails_the_request_in_words(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    errors: list[PoolError] = []

    async def acquire(pool: Pool) -> None:
        try:
            await pool.acquire("s", DEFAULT)
        except PoolError as exc:
            errors.append(exc)

    async with make_pool(MemoryLauncher()) as pool:
        await say(pool, "s", "hello")
        pool.submit(stimuli.Pause())
        nursery.start_soon(acquire, pool)
        await trio.testing.wait_all_tasks_blocked()
        pool.submit(stimuli.Resume())  # grants; before the caller's task runs, the worker is gone
        life = pool._workers.pop("w1")
        pool.submit(stimuli.ProcessExited("w1", WorkerError("gone")))
        await trio.testing.wait_all_tasks_blocked()
        pool._workers["w1"] = life
        life.request_stop(StopReason.OPERATOR, force=True)
        counters = pool.statistics().counters
    assert [type(error) for error in errors] == [WorkerExited]
    assert (counters.active, counters.lost) == (0, 1)


async def test_closing_ends_every_waiter_and_every_worker(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    outcomes: list[str] = []

    async def wait_for(pool: Pool) -> None:
        try:
            await pool.acquire("b", DEFAULT)
        except PoolClosed:
            outcomes.append("closed")

    async with trio.open_nursery() as callers, make_pool(launcher, max=1) as pool:
        await pool.acquire("a", DEFAULT)
        callers.start_soon(wait_for, pool)
        await trio.testing.wait_all_tasks_blocked()
    assert outcomes == ["closed"]
    assert launcher.live == {}


async def test_closing_does_not_wait_for_a_worker_that_never_becomes_ready(autojump_clock: MockClock) -> None:
    class Silent(MemoryWorker):
        async def serve(self) -> None:
            await trio.sleep_forever()

    launcher = MemoryLauncher()
    launcher.kind = Silent
    started = trio.current_time()
    async with make_pool(launcher, min=1) as pool:
        with pytest.raises(AcquireTimeout):
            await pool.acquire("s", DEFAULT, timeout=1)
    assert trio.current_time() - started == pytest.approx(1, abs=0.05)
    assert launcher.stops == ["w1"]
