"""What ends a node: nothing of it runs any more when its session goes on elsewhere."""

import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen

import pytest
import trio

from pool.lease import Lease
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import ProfilesSettings, build_profile
from tests.cluster.nodes import Cluster, cluster
from tests.rpc.procs import is_alive, wait_dead

pytestmark = pytest.mark.process

PROFILE = build_profile(ProfilesSettings(), "main", "default", "/")
Fault = Callable[[Popen[bytes]], None]


def kill(program: Popen[bytes]) -> None:
    program.kill()


def suspend(program: Popen[bytes]) -> None:
    program.send_signal(signal.SIGSTOP)


@asynccontextmanager
async def two_nodes(directory: Path) -> AsyncGenerator[tuple[Cluster, Pool], None]:
    with trio.fail_after(60):
        async with cluster(directory, lease=3.0, margin=2.0, silence=1.5) as nodes:
            await nodes.add("a")
            await nodes.add("b")
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                yield nodes, pool


async def prompted(lease: Lease) -> int:
    """The process of a worker that has had a turn."""
    await lease.prompt("alpha").wait()
    assert lease.pid is not None
    return lease.pid


@pytest.mark.parametrize("fault", [kill, suspend])
async def test_a_session_goes_on_elsewhere_once_nothing_of_its_lost_node_runs(tmp_path: Path, fault: Fault) -> None:
    async with two_nodes(tmp_path) as (nodes, pool):
        async with pool.lease("s", PROFILE) as lease:
            pid = await prompted(lease)
            began = time.monotonic()
            fault(nodes.programs[0])
            await lease.wait_ended()
            failed = time.monotonic() - began
        nodes.target = "b"
        async with pool.lease("s", PROFILE) as lease:
            moved = time.monotonic() - began
            assert not is_alive(pid), "its first worker runs on"
            assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'
        lost = [facts for event, facts in nodes.events if event in ("node_lost", "node_fenced")]
        assert [facts["node"] for facts in lost] == ["a", "a"]
        print(f"{fault.__name__}: the turn failed after {failed:.2f} s, the session was free after {moved:.2f} s")  # noqa: T201


async def test_a_node_program_that_is_started_again_frees_its_sessions_before_the_lease_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        with trio.fail_after(60):
            await nodes.add("a")
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                async with pool.lease("s", PROFILE) as lease:
                    pid = await prompted(lease)
                    nodes.programs[0].kill()
                    await lease.wait_ended()
                await nodes.add("a")
                async with pool.lease("s", PROFILE) as lease:
                    assert not is_alive(pid)
                    assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'


async def test_a_node_program_that_is_asked_to_end_says_that_nothing_runs_and_frees_its_sessions_at_once(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as nodes:  # whose lease is longer than the test
        with trio.fail_after(50):
            await nodes.add("a")
            await nodes.add("b", over="tls")
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                for target, elsewhere in (("a", "b"), ("b", "a")):
                    nodes.target = target
                    async with pool.lease("s", PROFILE) as lease:
                        pid = await prompted(lease)
                        nodes.programs["ab".index(target)].terminate()
                        await lease.wait_ended()
                    if target == "a":
                        await nodes.add("a")
                    nodes.target = elsewhere
                    async with pool.lease("s", PROFILE) as lease:
                        assert not is_alive(pid)
            assert nodes.programs[1].wait(20) == 0
            lost = [facts["reason"] for event, facts in nodes.events if event == "node_lost"]
            assert lost == ["it says: it was ended by SIGTERM"] * 2


async def test_an_invited_node_program_ends_with_its_link(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        with trio.fail_after(50):
            await nodes.add("a", over="tls")
            first = nodes.desk.linked("a")
            assert first is not None
            first.link.close()
            assert await trio.to_thread.run_sync(nodes.programs[0].wait, 20) == 0


async def test_a_node_kills_everything_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (nodes, pool), pool.lease("s", PROFILE) as lease:
        pid = await prompted(lease)
        node = nodes.desk.linked("a")
        assert node is not None
        os.kill(pid, signal.SIGSTOP)  # deaf to all but SIGKILL
        node.link.close()
        assert await trio.to_thread.run_sync(wait_dead, [pid], 20.0) == []
