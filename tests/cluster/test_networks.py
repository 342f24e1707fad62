"""A node whose network is cut while a turn runs there, and a supervisor that stalls: who ends what, and when.

A lease of 6 s, a silence of 3 s, a margin of 2 s. What may not be early is exact; what may not be late has the room
that a busy machine needs.
"""

import time
from pathlib import Path

import pytest
import trio

from errors import WorkerExited
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import ProfilesSettings, build_profile
from tests.cluster.networks import node_networks
from tests.cluster.nodes import cluster
from tests.rpc.procs import is_alive, wait_dead

pytestmark = pytest.mark.process

PROFILE = build_profile(ProfilesSettings(), "main", "default", "/")
LEASE, SILENCE, MARGIN = 6.0, 3.0, 2.0
LATE = 30.0
"""Seconds that this machine may be busy with something else."""


async def test_a_cut_network_fails_the_turn_ends_the_processes_and_frees_the_session_in_this_order(
    tmp_path: Path,
) -> None:
    times: dict[str, float] = {}
    with node_networks() as (of_a, of_b), trio.fail_after(150):
        async with cluster(tmp_path, lease=LEASE, margin=MARGIN, silence=SILENCE) as nodes:
            await nodes.add("a", network=of_a)
            await nodes.add("b", network=of_b)
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                async with pool.lease("s", PROFILE) as lease, trio.open_nursery() as nursery:
                    await lease.prompt("alpha").wait()
                    pid = lease.pid
                    assert pid is not None

                    async def note_end() -> None:
                        assert await trio.to_thread.run_sync(wait_dead, [pid], LEASE + LATE) == []
                        times["processes end"] = time.monotonic()

                    turn = lease.prompt("PIECES=2 HANG")
                    async for message in turn:
                        if message.event == "assistant_message":
                            break
                    began = time.monotonic()
                    of_a.cut()
                    nursery.start_soon(note_end)
                    with pytest.raises(WorkerExited, match="its node a was lost"):
                        await turn.wait()
                    times["turn fails"] = time.monotonic()
                nodes.target = "b"
                async with pool.lease("s", PROFILE) as lease:
                    times["session free"] = time.monotonic()
                    assert not is_alive(pid), "its first worker runs on"
                    assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha","PIECES=2 HANG"]'
                took = {what: at - began for what, at in times.items()}
                print(took)  # noqa: T201 - for the table of failures
                assert took["turn fails"] <= SILENCE + LATE
                assert took["processes end"] <= LEASE + LATE
                assert took["processes end"] < took["session free"] <= LEASE + MARGIN + LATE
                of_a.mend()
                await nodes.desk.wait_linked("a")
                nodes.target = "a"
                async with pool.lease("another", PROFILE) as lease:
                    assert (await lease.prompt("beta").wait()).text


async def test_a_supervisor_that_stalls_loses_its_workers_and_goes_on(tmp_path: Path) -> None:
    with trio.fail_after(100):
        async with cluster(tmp_path, lease=3.0, margin=MARGIN, silence=1.5) as nodes:
            await nodes.add("a", over="token")
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                async with pool.lease("s", PROFILE) as lease:
                    await lease.prompt("alpha").wait()
                    pid = lease.pid
                    assert pid is not None
                    time.sleep(3.0)  # noqa: ASYNC251 - it is what is tested
                    assert wait_dead([pid], LATE) == [], "the node does not wait for one that says nothing"
                    await lease.wait_ended()
                await nodes.desk.wait_linked("a")
                async with pool.lease("s", PROFILE) as lease:
                    assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'
