"""The end of a worker on a busy machine: whatever comes late, nothing of it is left alive."""

import fcntl
import secrets
import time
from pathlib import Path
from signal import SIGKILL

import pytest
import trio

from rpc.children import ChildRegistry
from rpc.orphans import sweep_instance, sweep_processes
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.transport import ExitStatus
from tests.rpc.procs import DOUBLE_FORK, LIMIT, is_alive, read_line, running, spec_of, wait_dead
from wire import procfs

pytestmark = pytest.mark.process

# Forks and ends, again and again, for a minute. Its lock tells whether any of them lives.
FORKS_ALL_THE_TIME = """
import fcntl, os, time
file = open({lock!r})
fcntl.flock(file, fcntl.LOCK_EX)
print("up", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""


async def test_a_worker_is_killed_though_no_thread_is_free_to_look_for_what_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rpc.process._SCAN_TIMEOUT", 0.05)
    children = ChildRegistry()
    process = WorkerProcess.spawn(spec_of(DOUBLE_FORK + "input()"), children, RpcSettings())

    async def own(*, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await process.supervise()

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            scope = await nursery.start(own)
            tool = int(await read_line(process))
            threads = range(int(children.scan_limiter.total_tokens))
            for number in threads:
                children.scan_limiter.acquire_on_behalf_of_nowait(number)
            scope.cancel()
            with trio.move_on_after(LIMIT / 2):
                await process.wait_exit()
            ended = process.exit_status
            for number in threads:
                children.scan_limiter.release_on_behalf_of(number)
        assert ended == ExitStatus(signal=SIGKILL)
        assert not is_alive(tool)


async def test_whoever_forks_all_the_time_ends_with_the_worker_however_late_the_hunter_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = procfs.all_pids

    def late() -> list[int]:
        found = list(look())
        time.sleep(0.004)
        return found

    monkeypatch.setattr("rpc.sweep.all_pids", late)
    lock = tmp_path / "lock"
    lock.touch()
    async with running(spec_of(FORKS_ALL_THE_TIME.format(lock=str(lock)))) as process:
        assert await read_line(process) == "up"
        await process.stop()
        with lock.open() as file:
            await trio.to_thread.run_sync(fcntl.flock, file, fcntl.LOCK_EX, abandon_on_cancel=True)


@pytest.mark.parametrize("what", ["the listed", "an instance"])
async def test_a_sweep_without_any_time_left_kills_all_the_same(what: str) -> None:
    ours = secrets.token_hex(8)
    async with running(spec_of("print(1, flush=True); input()", instance=ours)) as process:
        await read_line(process)
        report = await (
            sweep_processes([process.identity], timeout=0) if what == "the listed" else sweep_instance(ours, timeout=0)
        )
        assert report.killed == (process.pid,)
        assert wait_dead([process.pid], LIMIT) == []
