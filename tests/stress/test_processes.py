"""What is read of processes: workers by their mark, zombies, the supervisor behind a wrapper, how late they were."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from stress.connection import ReconnectingClient
from stress.facts import Fact, Journal, MachineDelay, ObservedProcess
from stress.faults.base import helper_process
from stress.sampler import ProcessTree, SupervisorSampler, find_supervisor, open_files, signal_process
from wire.procfs import read_stat

pytestmark = pytest.mark.process
MARKED = {**os.environ, "POOL_WORKER_ID": "abc:w7"}


def test_a_process_that_has_another_ones_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        stat = read_stat(child.pid)
        assert stat is not None
        assert not signal_process(ObservedProcess(child.pid, stat.start_time + 1, "w1"), signal.SIGKILL)
        assert child.poll() is None
        assert signal_process(ObservedProcess(child.pid, stat.start_time, "w1"), signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
        assert not signal_process(ObservedProcess(child.pid, stat.start_time, "w1"), signal.SIGKILL)
        assert open_files(child.pid) is None
    assert (open_files(os.getpid()) or 0) > 2


def test_workers_are_known_by_their_mark_running_or_not_and_zombies_by_their_state() -> None:
    unmarked = {name: value for name, value in os.environ.items() if name != "POOL_WORKER_ID"}
    with (
        subprocess.Popen(["sleep", "60"], env=MARKED, start_new_session=True) as worker,
        subprocess.Popen(["sleep", "60"], env=unmarked) as helper,
        subprocess.Popen(["true"]) as zombie,
    ):
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        tree = ProcessTree(os.getpid())
        while not (running := tree.scan()).workers:  # between fork and exec it has no mark yet
            pass
        assert [(each.pid, each.name) for each in running.workers] == [(worker.pid, "w7")]
        assert zombie.pid in running.zombies
        assert tree.instance == "abc"
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        assert tree.scan() == running
        assert {worker.pid, helper.pid} <= set(tree.leftovers())
        for process in (worker, helper):
            process.kill()
            process.wait()
        assert not {worker.pid, helper.pid} & set(tree.leftovers())


async def test_a_helper_is_killed_before_its_stdin_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = trio.Process.kill

    def kill_late(process: trio.Process) -> None:
        with suppress(subprocess.TimeoutExpired):
            process._proc.wait(0.5)  # on a slow machine
        kill(process)

    monkeypatch.setattr(trio.Process, "kill", kill_late)
    async with helper_process(["sh", "-c", f"echo; cat; touch {tmp_path}/end"]) as helper:
        await helper.read_line()
    assert not (tmp_path / "end").exists()


def test_behind_a_wrapper_the_supervisor_is_found_by_its_command(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_text("input()")
    inner = f"cd {tmp_path} && {sys.executable} -m cli run; true"
    with subprocess.Popen(["sh", "-c", inner], stdin=subprocess.PIPE) as wrapper:
        try:
            found = wrapper.pid
            while found == wrapper.pid:
                found = find_supervisor(wrapper.pid)
            stat = read_stat(found)
            assert stat is not None
            assert stat.parent == wrapper.pid
        finally:
            wrapper.communicate(b"\n")


async def test_a_delay_of_the_last_moment_is_recorded_when_the_watch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("stress.sampler._PROC", tmp_path)
    schedstat = tmp_path / "7/task/7/schedstat"
    schedstat.parent.mkdir(parents=True)
    schedstat.write_text("0 250000000 1")

    async def ready() -> Path:
        return tmp_path / "absent"

    seen: list[Fact] = []
    sampler = SupervisorSampler(
        ReconnectingClient(ready),
        process_tree=lambda: ProcessTree(7),
        life=lambda: 1,
        journal=Journal(trio.current_time, seen.append),
    )
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sampler.watch_delays)
        await trio.sleep(0.5)
        schedstat.write_text("0 950000000 1")
        nursery.cancel_scope.cancel()
    (last,) = seen
    assert isinstance(last, MachineDelay)
    assert (last.t - began, last.seconds) == pytest.approx((0.5, 0.7))
