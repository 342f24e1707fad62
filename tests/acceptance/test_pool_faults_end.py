"""Ends of a real pool: whatever its workers do about it, nothing of them is left (``hostile_pool`` checks that)."""

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from errors import PoolClosed, WorkerExited
from pool.stimuli import StopWorker
from tests.acceptance.hostile_pool import TIME_LIMIT, hostile_pool, profile_of
from tests.rpc.procs import is_alive

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


def behaving(*behaviours: str) -> list[str]:
    return [word for behaviour in behaviours for word in ("--behaviour", behaviour)]


CLINGING = ("ignore-eof", "ignore-sigterm")


@pytest.mark.parametrize(
    ("behaviours", "use_cgroups"),
    [
        (("ignore-eof",), True),
        (CLINGING, False),
        (("grandchild",), True),
        (("grandchild-holds-stdout", *CLINGING), True),
        (("grandchild-holds-stdout", *CLINGING), False),
    ],
)
async def test_a_pool_that_closes_ends_every_worker_and_every_grandchild(
    tmp_path: Path, behaviours: tuple[str, ...], *, use_cgroups: bool
) -> None:
    profile = profile_of(tmp_path, *behaving(*behaviours), "--pid-file", str(tmp_path / "pid"))
    async with hostile_pool(tmp_path, use_cgroups=use_cgroups) as world:
        await world.say("s", profile, "one")
        pids = [world.pid_of("s")]
        if "grandchild" in behaviours[0]:
            pids.append(int((tmp_path / "pid").read_text()))
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize(("behaviour", "use_cgroups"), [("grandchild", True), ("grandchild-holds-stdout", False)])
async def test_a_grandchild_does_not_outlive_its_worker_however_that_ends(
    tmp_path: Path, behaviour: str, *, use_cgroups: bool
) -> None:
    profile = profile_of(tmp_path, *behaving(behaviour), "--pid-file", str(tmp_path / "pid"))
    async with hostile_pool(tmp_path, use_cgroups=use_cgroups) as world:
        await world.say("s", profile, "one")
        killed = int((tmp_path / "pid").read_text())
        os.kill(world.pid_of("s"), signal.SIGKILL)
        await world.events.wait_for("worker_exited")
        assert not is_alive(killed)
        await world.say("s", profile, "two")
        stopped = int((tmp_path / "pid").read_text())
        assert stopped != killed
        (worker,) = world.pool.statistics().workers
        world.pool.submit(StopWorker(worker.id))
        await world.events.wait_for("worker_exited", 2)
        assert not is_alive(stopped)
        assert await world.say("s", profile, "three") == "echo: three | before: one, two"


@pytest.mark.parametrize("holder", ["a turn", "a lease", "a start", "a reset"])
async def test_closing_does_not_wait_for_a_worker_that_hangs(tmp_path: Path, holder: str) -> None:
    """And whoever waits for something of it is told."""
    hangs = {"a start": behaving("never-ready"), "a reset": behaving("never-reads")}.get(holder, [])
    profile = profile_of(tmp_path, *hangs, *behaving(*CLINGING))
    told: list[type[Exception]] = []
    patience = 60.0

    async with trio.open_nursery() as callers:

        async def hold() -> None:
            try:
                async with world.pool.lease("s", profile) as lease:
                    if holder == "a lease":
                        held.set()
                        await trio.sleep_forever()
                    stream = lease.prompt("wait")
                    await stream.next_batch()
                    held.set()
                    await stream.wait()
            except (PoolClosed, WorkerExited) as exc:
                told.append(type(exc))

        held = trio.Event()
        async with hostile_pool(tmp_path, check_books=False, start_timeout=patience, reset_timeout=patience) as world:
            callers.start_soon(hold)
            if not hangs:
                await held.wait()
            await world.events.wait_for("worker_spawned" if holder == "a start" else "worker_ready")
            await trio.testing.wait_all_tasks_blocked(0.05)
            closing = trio.current_time()
        assert trio.current_time() - closing < patience / 2
        callers.cancel_scope.cancel()
    assert told == {"a turn": [WorkerExited], "a lease": []}.get(holder, [PoolClosed])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
async def test_an_exception_leaves_the_block_as_it_is_when_every_worker_is_gone(
    tmp_path: Path, error: type[BaseException]
) -> None:
    profile = profile_of(tmp_path, *behaving(*CLINGING))

    async def fail_in_the_block() -> None:
        async with hostile_pool(tmp_path, check_books=False) as world, world.pool.lease("s", profile) as lease:
            await lease.prompt("wait").next_batch()
            raise error

    with pytest.raises(error):
        await fail_in_the_block()


@pytest.mark.parametrize("moment", ["starting", "in a turn", "closing"])
async def test_a_pool_cancelled_from_outside_leaves_nothing(tmp_path: Path, moment: str) -> None:
    profile = profile_of(tmp_path, *behaving(*CLINGING))
    with trio.CancelScope() as scope:
        async with hostile_pool(tmp_path, check_books=False) as world:
            if moment == "starting":
                world.events.on("worker_spawned", scope.cancel)
            async with world.pool.lease("s", profile) as lease:
                stream = lease.prompt("wait")
                await stream.next_batch()
                if moment == "in a turn":
                    scope.cancel()
                await lease.abort()
                await stream.wait()
            scope.deadline = trio.current_time() + 0.1
    assert scope.cancelled_caught or moment == "closing"
