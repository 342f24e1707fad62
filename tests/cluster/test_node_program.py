"""Workers on real nodes: what was acknowledged survives the worker, its node program, and the link."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from cluster.link import WINDOW_BYTES
from cluster.transport import RemoteProcess
from errors import WorkerStartFailed
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import AgentSettings, ProfilesSettings, build_profile
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from rpc.transport import ExitStatus
from tests.cluster.nodes import Cluster, cluster
from tests.rpc.procs import is_alive

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("over", "shared"), [("stdio", False), ("tls", False), ("tls", True)])
async def test_a_conversation_goes_on_at_another_node_from_what_was_shipped_or_is_shared(
    tmp_path: Path, over: str, *, shared: bool
) -> None:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    with trio.fail_after(60):
        async with cluster(tmp_path, shared=shared) as nodes:
            await nodes.add("a", over=over)
            await nodes.add("b", over=over)
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                async with pool.lease("s", profile) as lease:
                    assert (await lease.prompt("alpha").wait()).text
                    kept = (await lease.state()).session_file
                    assert kept is not None
                    assert "alpha" in await trio.Path(kept).read_text(), "an answer that is there is on the disk here"
                    assert lease.pid is not None
                    os.kill(lease.pid, signal.SIGKILL)
                    await lease.wait_ended()
                nodes.target = "b"
                async with pool.lease("s", profile) as lease:
                    assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'


@asynccontextmanager
async def process_on(
    nodes: Cluster, nursery: trio.Nursery, *argv: str, secrets: tuple[str, ...] = ()
) -> AsyncGenerator[RemoteProcess, None]:
    """A program on the node ``a``; killed at the end of the block."""
    plan = WorkerPlan(worker_id=f"w{len(argv[-1])}", agent="main", argv=argv, cwd="/", secrets=secrets)
    async with process_of(nodes, nursery, plan) as process:
        yield process


@asynccontextmanager
async def process_of(nodes: Cluster, nursery: trio.Nursery, plan: WorkerPlan) -> AsyncGenerator[RemoteProcess, None]:
    """The same for a whole plan."""
    node = nodes.desk.linked("a")
    assert node is not None
    process = node.start(plan, RpcSettings(), LineLog(None, 1 << 20))
    nursery.start_soon(process.run)
    try:
        await process.wait_started()
        yield process
    finally:
        await process.stop(force=True)
        node.forget(process)


async def received(process: RemoteProcess, count: int) -> bytes:
    data = b""
    while len(data) < count:
        await process.wait_readable()
        data += process.receive_nowait() or b""
    return data


async def test_an_unread_flood_stops_at_its_credit_and_slows_no_neighbour(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
            await nodes.add("a")
            async with process_on(nodes, nursery, "yes") as flood, process_on(nodes, nursery, "cat") as neighbour:
                read = len(await received(flood, 3 * WINDOW_BYTES))  # credit is given again and again
                for _ in range(20):
                    assert neighbour.send_nowait(b"ping\n") == 5
                    assert await received(neighbour, 5) == b"ping\n"
                assert read >= 3 * WINDOW_BYTES
                assert flood._held_bytes <= WINDOW_BYTES + 64 * 1024
            nursery.cancel_scope.cancel()


async def test_files_of_a_working_directory_on_a_node_are_fetched_up_to_a_limit(tmp_path: Path) -> None:
    body = os.urandom(3 * WINDOW_BYTES)
    await trio.Path(tmp_path / "big").write_bytes(body)
    os.mkfifo(tmp_path / "pipe")
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
            await nodes.add("a")
            async with process_on(nodes, nursery, "cat") as worker:
                where = str(tmp_path).lstrip("/")  # it works in /
                assert await worker.fetch(f"{where}/big", len(body) + 1) == body
                assert await worker.fetch(f"{where}/big", 10) == body[:10]
                with pytest.raises(FileNotFoundError):
                    await worker.fetch(f"{where}/none", 10)
                with pytest.raises(OSError, match="it is no regular file"):
                    await worker.fetch(f"{where}/pipe", 10)
            nursery.cancel_scope.cancel()


async def test_a_working_directory_is_made_and_filled_on_the_node_before_the_worker_starts(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
            await nodes.add("a")
            cwd = nodes.data_dir / "workspaces" / "default"
            plan = WorkerPlan(worker_id="w1", agent="main", argv=("cat", "made"), cwd=str(cwd))
            async with process_of(nodes, nursery, msgspec.structs.replace(plan, prepare=("touch", "made"))) as worker:
                assert await worker.wait_exit() == ExitStatus(0)
            failing = msgspec.structs.replace(plan, prepare=("sh", "-c", "echo no such branch; exit 9"))
            with pytest.raises(WorkerStartFailed, match="its command `prepare` exited with code 9: no such branch"):
                async with process_of(nodes, nursery, failing):
                    pass
            assert not cwd.exists(), "on the node alone"
            nursery.cancel_scope.cancel()


async def test_a_program_on_a_node_ends_by_the_ladder_and_says_how(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
            await nodes.add("a")
            async with process_on(nodes, nursery, "cat") as polite:
                assert await polite.stop() == ExitStatus(0)
                assert polite.ended_in_order
            script = "echo key canary-secret >&2; sleep 600 & echo $!; exit 7"
            async with process_on(nodes, nursery, "sh", "-c", script, secrets=("canary-secret",)) as program:
                assert await program.wait_exit() == ExitStatus(7)
                child = int(program.receive_nowait() or b"")
                await program.stop()
                assert not is_alive(child), "what it left behind"
                assert program.stderr_tail().startswith("key ")
                assert "canary-secret" not in program.stderr_tail()
            with pytest.raises(WorkerStartFailed, match="there is no program 'no-such-program'") as failed:
                async with process_on(nodes, nursery, "no-such-program"):
                    pass
            assert failed.value.details["refused"]
            nursery.cancel_scope.cancel()


async def test_values_of_the_environment_are_nowhere_on_a_node_but_in_its_workers(tmp_path: Path) -> None:
    script = 'echo "key $API_KEY" >&2; echo started; cat'
    plan = WorkerPlan(
        worker_id="w1",
        agent="main",
        argv=("sh", "-c", script),
        cwd="/",
        env=(("API_KEY", "canary-secret"),),
        secrets=("canary-secret",),
    )
    failing = msgspec.structs.replace(plan, prepare=("sh", "-c", 'echo "no access with $API_KEY"; exit 1'))
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
            program = await nodes.add("a")
            with pytest.raises(WorkerStartFailed, match="no access with") as refused:
                async with process_of(nodes, nursery, failing):
                    pass
            async with process_of(nodes, nursery, plan) as worker:
                said = trio.Event()
                worker.on_stderr(lambda _lines: said.set())
                await received(worker, len(b"started\n"))
                if not worker.stderr_tail():  # it comes by another pipe
                    await said.wait()
                shown = [refused.value.message, str(refused.value.details), worker.stderr_tail()]
                shown += await trio.to_thread.run_sync(traces_of, nodes, program.pid)
                assert [text for text in shown if "canary" in text] == []
                assert worker.stderr_tail().startswith("key ")
                environ = await trio.Path(f"/proc/{worker.pid}/environ").read_text()
                assert "canary-secret" in environ, "the worker has it"
            nursery.cancel_scope.cancel()


def traces_of(nodes: Cluster, program: int) -> list[str]:
    """What a node leaves for others to read: its files, what it says, and how its processes are called."""
    disk = Path(f"/proc/{program}/root{nodes.data_dir}")
    assert (disk / "sessions").is_dir(), "its disk was not looked at"
    files = [path for path in disk.rglob("*") if path.is_file()]
    files += [path for path in nodes.data_dir.parent.glob("state-*/*") if path.is_file()] + [nodes.stderr_of("a")]
    texts = [path.read_text(errors="replace") for path in files]
    return texts + [Path(f"/proc/{pid}/cmdline").read_text() for pid in (program, *descendants(program))]


def descendants(pid: int) -> list[int]:
    found = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return found + [each for child in found for each in descendants(child)]


async def test_a_start_that_the_node_refuses_fails_as_one_here_does(tmp_path: Path) -> None:
    profiles = ProfilesSettings(agents={"main": AgentSettings(command=["no-such-program"])})
    profile = build_profile(profiles, "main", "default", "/")
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes:
            await nodes.add("a")
            with pytest.raises(WorkerStartFailed, match="there is no program 'no-such-program'"):
                async with nodes.launcher.open("w1", profile, force=trio.Event()):
                    pass
            (log,) = sorted((nodes.data_dir / "logs").iterdir())
            assert "there is no program 'no-such-program'" in log.read_text()
