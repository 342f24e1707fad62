"""Workers that are forked: the same in all that can be seen, and spawned wherever they cannot be forked."""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import rpc.fork_server
from errors import WorkerStartFailed
from rpc.children import ChildRegistry
from rpc.fork_server import ForkServer
from rpc.process import WorkerProcess
from rpc.rlimit_mark import mark_number
from rpc.settings import RpcSettings
from rpc.spawn import SpawnedProcess, WorkerSpec, worker_environment
from rpc.transport import ExitStatus
from tests.rpc.procs import LIMIT, is_alive, open_fds, read_line, wait_dead
from wire.procfs import children_of

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")]

COMMAND = (sys.executable, "-P", "-m", "agent", "--mode", "rpc")
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}


class Forks:
    """A fork server that runs, its workers, and what it has reported."""

    def __init__(self, nursery: trio.Nursery, command: tuple[str, ...]) -> None:
        self.children = ChildRegistry()
        self.instance = secrets.token_hex(8)
        self.lost: list[str] = []
        self.was_lost = trio.Event()
        self.server = ForkServer(command, ENV, f"{self.instance}:", self.children, on_lost=self._report)
        self._nursery = nursery

    def _report(self, reason: str) -> None:
        self.lost.append(reason)
        self.was_lost.set()

    @property
    def pid(self) -> int:
        """The server's."""
        (found,) = self.children.pids() - {worker.pid for worker in self.children.workers()}
        return found

    def spec(self, *arguments: str, command: tuple[str, ...] = COMMAND, cwd: str = "/", **env: str) -> WorkerSpec:
        marker = f"{self.instance}:w1"
        environment = worker_environment(RpcSettings(env_passthrough=[]), {}, {**ENV, **env}.items(), marker)
        argv = (*command, "--session-dir", "/nowhere", *arguments)
        return WorkerSpec(worker_id="w1", marker=marker, argv=argv, env=tuple(environment.items()), cwd=cwd)

    def own(self, spec: WorkerSpec, started: SpawnedProcess | None) -> WorkerProcess:
        """The worker of what was started; None spawns it."""
        process = WorkerProcess.spawn(spec, self.children, RpcSettings(), started=started)
        self._nursery.start_soon(process.supervise)
        return process

    async def forked(self, *arguments: str) -> WorkerProcess:
        """A worker that was forked."""
        spec = self.spec(*arguments)
        started = await self.server.start(spec)
        assert started is not None, self.lost
        return self.own(spec, started)


@asynccontextmanager
async def running(command: tuple[str, ...] = COMMAND) -> AsyncIterator[Forks]:
    """A fork server; at the end nothing of it is left, and no descriptor."""
    before = open_fds()
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            forks = Forks(nursery, command)
            await nursery.start(forks.server.run)
            yield forks
            nursery.cancel_scope.cancel()
        assert open_fds() == before
        assert forks.children.pids() == set()


def outside(pid: int) -> dict[str, object]:
    """What /proc shows of a process; numbers that each has its own of are left out."""
    place = Path("/proc", str(pid))
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
    kept = ("Umask", "TracerPid", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Uid", "Gid", "Groups")
    del status["SigQ"]  # counts the signals of all processes of the user
    status["SigCgt"] = hex(int(status["SigCgt"], 16) & 0x7FFF_FFFF)  # without those of threads, which come and go
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    return {
        **{name: (place / name).read_bytes() for name in ("cmdline", "environ", "comm", "limits", "cgroup")},
        **{name: value for name, value in status.items() if name.startswith(("Sig", "Shd", "Cap", *kept))},
        **{name: (place / name).readlink() for name in ("cwd", "exe", "root")},
        "oom": (place / "oom_score_adj").read_text(),
        "parent, group, session": [int(fields[1]), int(fields[2]) - pid, int(fields[3]) - pid],
        "terminal, nice": (fields[4], fields[16]),
        "files": {file.name: re.sub(r"\d+", "", str(file.readlink())) for file in (place / "fd").iterdir()},
    }


async def test_a_forked_worker_is_like_a_spawned_one_in_all_that_can_be_seen() -> None:
    async with running() as forks:
        forked = await forks.forked("--append-system-prompt", "ä", "--no-tools")
        spawned = forks.own(forks.spec("--append-system-prompt", "ä", "--no-tools"), None)
        for worker in (forked, spawned):
            assert "ready" in await read_line(worker)
        seen = outside(forked.pid)
        assert seen == outside(spawned.pid)
        assert seen["environ"].startswith(f"POOL_WORKER_ID={forks.instance}:w1\0PATH=".encode())  # type: ignore[attr-defined]
        assert f" {mark_number(f'{forks.instance}:w1')} ".encode() in seen["limits"]  # type: ignore[operator]


@pytest.mark.parametrize("ending", ["end of input", "killed"])
async def test_how_a_forked_worker_ended_is_known(ending: str) -> None:
    async with running() as forks:
        worker = await forks.forked()
        await read_line(worker)
        if ending == "killed":
            os.kill(worker.pid, signal.SIGKILL)
            assert await worker.wait_exit() == ExitStatus(signal=signal.SIGKILL)
        assert await worker.stop() == (ExitStatus(signal=signal.SIGKILL) if ending == "killed" else ExitStatus(code=0))
        assert worker.pid not in children_of(os.getpid())


async def test_what_a_forked_worker_says_before_it_fails_is_kept() -> None:
    async with running() as forks:
        worker = await forks.forked("--no-such-option")
        assert await worker.wait_exit() == ExitStatus(code=2)
        assert "--no-such-option" in worker.stderr_tail()


@pytest.mark.parametrize(
    ("command", "arguments", "env"),
    [
        ((sys.executable, "-m", "agent"), (), {}),
        (("/bin/wrapper", *COMMAND), (), {}),
        (COMMAND, (), {"PYTHONHASHSEED": "1"}),
        (COMMAND, (), {"LD_PRELOAD": "x.so"}),
        (COMMAND, (), {"LC_ALL": "C"}),
        (COMMAND, ("--system-prompt", "x" * 128 * 1024), {}),
        (COMMAND, ("--system-prompt", "\0"), {}),
    ],
)
async def test_what_would_be_another_process_is_left_to_be_spawned(
    command: tuple[str, ...], arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    async with running() as forks:
        assert await forks.server.start(forks.spec(*arguments, command=command, **env)) is None
        assert forks.lost == []


@pytest.mark.parametrize("place", ["missing", "closed"])
async def test_a_working_directory_that_cannot_be_entered_is_left_to_be_reported_by_spawning(
    tmp_path: Path, place: str
) -> None:
    cwd = tmp_path / place
    if place == "closed":
        cwd.mkdir(mode=0o600)
    async with running() as forks:
        spec = forks.spec(cwd=str(cwd))
        if place == "closed" and os.access(cwd, os.X_OK):
            pytest.skip("root may enter any directory")
        assert await forks.server.start(spec) is None
        with pytest.raises(WorkerStartFailed, match="its working directory"):
            forks.own(spec, None)
        await read_line(await forks.forked())  # and it goes on


async def test_a_server_that_is_killed_is_replaced_and_its_workers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc.fork_server, "_RESTART_DELAY", 0)
    async with running() as forks:
        worker = await forks.forked()
        first = forks.pid
        os.kill(first, signal.SIGKILL)
        await forks.was_lost.wait()
        assert forks.lost == [f"the fork server {first} killed by signal 9; workers are spawned until there is another"]
        await trio.testing.wait_all_tasks_blocked()
        second = await forks.forked()
        assert forks.pid != first
        assert is_alive(worker.pid)
        assert "ready" in await read_line(second)


async def test_workers_are_spawned_until_a_lost_server_is_replaced() -> None:
    async with running() as forks:
        await forks.forked()
        os.kill(forks.pid, signal.SIGKILL)
        await forks.was_lost.wait()
        assert await forks.server.start(forks.spec()) is None


async def test_a_server_that_does_not_answer_holds_up_no_worker_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as forks:
        await read_line(await forks.forked())
        monkeypatch.setattr(rpc.fork_server, "_ANSWER_TIMEOUT", 0.1)
        os.kill(forks.pid, signal.SIGSTOP)
        assert await forks.server.start(forks.spec()) is None
        await forks.was_lost.wait()


async def test_a_fork_whose_caller_is_cancelled_leaves_no_process() -> None:
    async with running() as forks:
        await read_line(await forks.forked())
        os.kill(forks.pid, signal.SIGSTOP)
        spec = forks.spec()
        workers = []

        async def start() -> None:
            workers.append(forks.own(spec, await forks.server.start(spec)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            os.kill(forks.pid, signal.SIGCONT)
        assert children_of(os.getpid()) == forks.children.pids()
        assert [worker.pid in forks.children for worker in workers] == [True]


async def test_where_workers_cannot_be_forked_it_is_said_once_and_they_are_spawned(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nimport os\nos.write(0, b'no clone here')\n")
    program.chmod(0o700)
    command = (str(program), *COMMAND[1:])
    async with running(command) as forks:
        assert await forks.server.start(forks.spec(command=command)) is None
        assert await forks.server.start(forks.spec(command=command)) is None
        assert forks.lost == ["workers cannot be forked here and are spawned: no clone here"]


async def test_a_server_that_cannot_be_started_keeps_no_worker_waiting() -> None:
    command = ("/no/such/python", *COMMAND[1:])
    async with running(command) as forks:
        assert await forks.server.start(forks.spec(command=command)) is None
        assert "No such file" in forks.lost[0]


_SUPERVISOR = """
import os, sys, trio
from tests.rpc.test_fork_server import read_line, running

async def main():
    async with running() as forks:
        worker = await forks.forked()
        await read_line(worker)
        print(forks.pid, worker.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def test_server_and_workers_end_with_a_supervisor_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _SUPERVISOR], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
        supervisor.kill()
    assert len(pids) == 2
    assert wait_dead(pids, LIMIT) == []
