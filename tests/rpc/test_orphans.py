"""Adopting, reaping and sweeping: every orphan ends, however late we are, and nothing of others is taken."""

import fcntl
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from errors import UsageError
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.orphans import Reaper, become_subreaper, sweep_adopted, sweep_instance, sweep_previous, sweep_processes
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.state_file import SupervisorState
from rpc.sweep import SweepReport
from rpc.transport import ExitStatus
from tests.rpc.procs import (
    DOUBLE_FORK,
    HIDDEN_COMPLETELY,
    HIDDEN_FROM_ENVIRONMENT,
    LIMIT,
    is_alive,
    read_all,
    read_line,
    running,
    spec_of,
    wait_dead,
)
from wire import procfs
from wire.procfs import ProcessIdentity, children_of, identify, read_stat

pytestmark = pytest.mark.process


@pytest.fixture
def subreaper() -> Iterator[None]:
    """We adopt orphans for the length of one test."""
    if not become_subreaper():
        pytest.skip("no subreaper on this platform")
    yield
    become_subreaper(enabled=False)


# Leaves orphans that end with a code of their own, then ends with the code that it is asked for.
LITTER = """
import os, sys
code, orphans = map(int, input().split())
for _ in range(orphans):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(99)
        os._exit(98)
    os.wait()
sys.exit(code)
"""


async def test_exit_statuses_stay_right_while_a_hundred_orphans_are_reaped(subreaper: None) -> None:
    children = ChildRegistry()
    reaper = Reaper(children)
    statuses: dict[int, ExitStatus] = {}

    async def one(code: int) -> None:
        async with running(spec_of(LITTER), children=children) as process:
            process.send_nowait(b"%d 4\n" % code)
            statuses[code] = await process.wait_exit()

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            await nursery.start(reaper.run)
            async with trio.open_nursery() as workers:
                for code in range(30):
                    workers.start_soon(one, code)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    reaper.reap_nowait()
    assert statuses == {code: ExitStatus(code=code) for code in range(30)}
    assert reaper.reaped == 120
    assert _zombies() == []


def _zombies() -> list[int]:
    stats = map(read_stat, children_of(os.getpid()))
    return [stat.pid for stat in stats if stat is not None and stat.state == "Z"]


def test_somebody_elses_ordinary_subprocess_keeps_its_exit_status(subreaper: None) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(7)"]) as stranger:
        os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
        assert Reaper(ChildRegistry()).reap_nowait() == 0
    assert stranger.returncode == 7


class TellingReaper(Reaper):
    """Says when it has reaped something."""

    def __init__(self, children: ChildRegistry) -> None:
        super().__init__(children)
        self.done = trio.Event()

    def reap_nowait(self) -> int:
        count = super().reap_nowait()
        if count:
            self.done.set()
        return count


async def test_an_orphan_of_a_worker_is_reaped_when_it_ends(subreaper: None) -> None:
    children = ChildRegistry()
    async with running(spec_of(DOUBLE_FORK + "input()"), children=children) as process:
        tool = int(await read_line(process))
        stat = read_stat(tool)
        assert stat is not None
        assert stat.parent == os.getpid()  # adopted
        async with trio.open_nursery() as nursery:
            reaper = TellingReaper(children)
            await nursery.start(reaper.run)
            assert not reaper.done.is_set()
            os.kill(tool, signal.SIGKILL)
            await reaper.done.wait()
            assert read_stat(tool) is None
            nursery.cancel_scope.cancel()


async def test_adopted_processes_that_hide_everything_end_with_the_supervisor(subreaper: None) -> None:
    children = ChildRegistry()
    async with running(spec_of(HIDDEN_COMPLETELY + "input()"), children=children) as process:
        tool = int(await read_line(process))
        await process.stop(force=True)
        assert is_alive(tool)  # no mark, no descent, no cgroup: not this worker's for all we know
    assert await sweep_adopted(children) == SweepReport(killed=(tool,))
    assert Reaper(children).reap_nowait() == 1


async def test_an_instance_is_swept_by_its_marker_and_no_other_is() -> None:
    ours, other = secrets.token_hex(8), secrets.token_hex(8)
    async with running(spec_of(DOUBLE_FORK + "input()", instance=ours)) as process:
        tool = int(await read_line(process))
        async with running(spec_of("input()", instance=other)) as bystander:
            report = await sweep_instance(ours)
            killed = set(report.killed)
            assert process.pid in killed <= {process.pid, tool}
            assert not is_alive(tool)  # by the sweep, or by the worker's own end, whichever came to it first
            assert report.left == ()
            assert is_alive(bystander.pid)
        assert await process.wait_exit() == ExitStatus(signal=signal.SIGKILL)


# Forks and ends, again and again, for a minute. Its lock says whether any of them lives.
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


@pytest.mark.parametrize("delay", [0, 0.004], ids=["in time", "late"])
async def test_a_process_that_forks_all_the_time_does_not_escape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    look = procfs.all_pids

    def look_late() -> list[int]:
        found = list(look())
        time.sleep(delay)
        return found

    monkeypatch.setattr("rpc.sweep.all_pids", look_late)
    lock = tmp_path / "lock"
    lock.touch()
    async with running(spec_of(FORKS_ALL_THE_TIME.format(lock=str(lock)))) as process:
        assert await read_line(process) == "up"
        await process.stop()  # the first of them was gone at once; the others hop on
        with lock.open() as file:
            await trio.to_thread.run_sync(fcntl.flock, file, fcntl.LOCK_EX, abandon_on_cancel=True)


async def test_what_a_state_file_lists_is_killed_if_it_is_still_the_same_process() -> None:
    async with running(spec_of(DOUBLE_FORK + "input()")) as process:
        tool = int(await read_line(process))
        report = await sweep_processes([process.identity])
        assert process.pid in report.killed
        assert not is_alive(tool)  # by the sweep, or by the worker's own end, whichever came to it first
        assert await process.wait_exit() == ExitStatus(signal=signal.SIGKILL)


@pytest.mark.parametrize("lie", ["start_time", "boot_id", "marker"])
async def test_a_stranger_with_a_dead_workers_pid_is_never_signalled(lie: str) -> None:
    async with running(spec_of("input()")) as process:
        listed = process.identity
        wrong: dict[str, ProcessIdentity] = {
            "start_time": listed._replace(start_time=listed.start_time - 1, marker="gone:w1"),
            "boot_id": listed._replace(boot_id="another"),
            "marker": listed._replace(marker="gone:w1"),
        }
        assert await sweep_processes([wrong[lie]]) == SweepReport(unrelated=(process.pid,))
        process.send_nowait(b"\n")
        assert await process.wait_exit() == ExitStatus(code=0)


async def test_a_listed_process_that_is_gone_is_no_matter() -> None:
    async with running(spec_of("pass")) as process:
        await process.stop()
    assert await sweep_processes([process.identity]) == SweepReport()


def write_state(path: Path, **facts: Any) -> None:
    """The state file of a supervisor; of a dead one, if nothing else is said."""
    dead = identify(os.getpid())._replace(start_time=1)
    path.write_bytes(msgspec.json.encode(SupervisorState(**{"supervisor": dead, **facts})))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "workers.json"


async def test_the_next_supervisor_ends_what_the_last_one_left(path: Path) -> None:
    instance = secrets.token_hex(8)
    assert await sweep_previous(path) == SweepReport()
    async with running(spec_of("input()", instance=instance)) as listed:
        async with running(
            spec_of("input()", worker_id="w2", instance=instance)
        ) as unlisted:  # spawned after the last write
            write_state(path, instance=instance, workers=[listed.identity])
            report = await sweep_previous(path)
            assert {listed.pid, unlisted.pid} == set(report.killed)
            await unlisted.wait_exit()
        await listed.wait_exit()


async def test_the_next_supervisor_ends_also_what_has_hidden_itself(path: Path) -> None:
    instance, other = secrets.token_hex(8), secrets.token_hex(8)
    async with (
        running(spec_of(HIDDEN_FROM_ENVIRONMENT + "input()", instance=instance)) as worker,
        running(spec_of(HIDDEN_FROM_ENVIRONMENT + "input()", instance=other)) as bystander,
    ):
        tool, strange = int(await read_line(worker)), int(await read_line(bystander))
        os.kill(worker.pid, signal.SIGSTOP)  # its own end cannot have been what ends the tool
        write_state(path, instance=instance)
        report = await sweep_previous(path)
        assert wait_dead([tool], 1.0) == []
        assert strange not in report.killed
        assert is_alive(strange)


async def test_the_cgroup_that_the_last_supervisor_left_is_emptied_and_removed(path: Path) -> None:
    instance = secrets.token_hex(8)
    cgroup = Cgroup.for_instance(instance)
    if cgroup is None:
        pytest.skip("no writable cgroup v2 on this machine")
    own = cgroup.for_worker("w1")
    assert own is not None
    async with running(spec_of("input()")) as process:  # of another instance: only the cgroup tells
        assert own.add(process.pid)
        write_state(path, instance=instance, cgroup=str(cgroup.path))
        await sweep_previous(path)
        assert await process.wait_exit() == ExitStatus(signal=signal.SIGKILL)
    assert not cgroup.path.exists()


async def test_a_supervisor_that_still_runs_keeps_its_workers(path: Path) -> None:
    async with running(spec_of("input()")) as process:
        write_state(path, instance="other", supervisor=identify(os.getpid()), workers=[process.identity])
        with pytest.raises(UsageError, match=f"pid {os.getpid()}"):
            await sweep_previous(path)
        assert is_alive(process.pid)
        process.send_nowait(b"\n")
        assert await read_all(process) == b""


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
        assert ended == ExitStatus(signal=signal.SIGKILL)
        assert not is_alive(tool)


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
