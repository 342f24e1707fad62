"""The guard: what happens to the workers of a supervisor that is killed."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from rpc import guard as guard_module
from rpc import guard_main
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.guard import Guard, supervise_guard
from rpc.rlimit_mark import clear_rlimit_mark, mark_by_rlimit, rlimit_mark_of
from rpc.transport import ExitStatus
from tests.rpc.procs import LIMIT, is_alive, open_fds, running, spec_of, wait_dead
from wire.procfs import MARKER_VARIABLE, read_stat

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

# A supervisor with a guard and four workers: one that ignores everything polite, one suspended, one whose tool has
# detached itself, one whose tool hides besides. Prints all their pids, then waits.
# Arguments: instance, "cgroup" or "marker".
SUPERVISOR = """
import os, signal, sys, trio
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.guard import Guard
from rpc.orphans import become_subreaper
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from tests.rpc.procs import DOUBLE_FORK, HIDDEN_FROM_ENVIRONMENT, receive, spec_of

async def main(instance, kind):
    become_subreaper()
    children = ChildRegistry()
    cgroup = Cgroup.for_instance(instance) if kind == "cgroup" else None
    guard = Guard.start(instance, cgroup, children)
    deaf = "import os, signal, time; signal.signal(15, signal.SIG_IGN)" + chr(10)
    plain = deaf + "os.write(1, b'0'); time.sleep(600)"
    pids = []
    async with trio.open_nursery() as nursery:
        tools = (deaf + code + "time.sleep(600)" for code in (DOUBLE_FORK, HIDDEN_FROM_ENVIRONMENT))
        for code in (plain, plain, *tools):
            process = WorkerProcess.spawn(spec_of(code, instance=instance), children, RpcSettings(), cgroups=cgroup)
            nursery.start_soon(process.supervise)
            pids += [process.pid, int(await receive(process))]
        os.kill(pids[2], signal.SIGSTOP)
        print(guard.pid, *filter(None, pids), flush=True)
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def supervisor(instance: str, kind: str) -> Iterator[tuple[subprocess.Popen[bytes], int, list[int]]]:
    """A supervisor process, its guard's pid, and the pids of all that it must not leave behind."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SUPERVISOR, instance, kind],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        guard, *pids = map(int, process.stdout.readline().split())
        yield process, guard, pids
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until_it_waits(guard: int) -> None:
    """It opens its pidfd last of all; until then it may hold what Python reads when it starts."""
    while not any("[pidfd]" in link for link in links_of(guard)):
        time.sleep(0.01)


def links_of(pid: int) -> list[str]:
    """What the file descriptors of a process refer to."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            links.append(str(entry.readlink()))
    return links


@pytest.mark.parametrize("kind", ["marker", "cgroup"])
def test_a_killed_supervisor_takes_everything_along(kind: str) -> None:
    instance = secrets.token_hex(8)
    cgroup = Cgroup.for_instance(instance) if kind == "cgroup" else None
    if kind == "cgroup" and cgroup is None:
        pytest.skip("no writable cgroup v2 on this machine")
    with supervisor(instance, kind) as (process, guard, pids):
        assert len(pids) == 6
        assert all(map(is_alive, [guard, *pids]))
        stat = read_stat(guard)
        assert stat is not None
        assert stat.session == guard
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard, number)  # what a terminal sends to all
        process.kill()
        assert wait_dead(pids, LIMIT) == []
        assert wait_dead([guard], LIMIT) == []
        assert cgroup is None or not cgroup.path.exists()


def test_the_guard_holds_nothing_of_the_supervisors_and_is_small() -> None:
    with supervisor(secrets.token_hex(8), "marker") as (process, guard, _):
        assert process.poll() is None
        wait_until_it_waits(guard)
        files = {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{guard}/fd").iterdir()}
        assert files.pop("0").startswith("pipe:")
        assert {files.pop("1"), files.pop("2")} == {"/dev/null"}
        assert [name for name in files.values() if not name.endswith((".py", ".pyc", ".so", "[pidfd]"))] == []
        status = Path(f"/proc/{guard}/status").read_text()
        private = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        assert private < 10 * 1024  # kB
        assert Path(f"/proc/{guard}/cwd").readlink() == Path("/")


async def test_a_guard_is_not_swept_with_the_worker_that_has_started_its_supervisor() -> None:
    mark_by_rlimit(os.getpid(), f"{secrets.token_hex(8)}:w1")
    try:
        popen, pipe = guard_module._spawn([guard_main.__file__, "inner", str(os.getpid()), ""], ExitStack())
    finally:
        clear_rlimit_mark(os.getpid())
    assert rlimit_mark_of(popen.pid) is None
    pipe.write_nowait(guard_main.CLEAN_SHUTDOWN)
    pipe.close()
    assert await trio.to_thread.run_sync(popen.wait, LIMIT) == 0


async def test_after_a_goodbye_the_guard_leaves_and_touches_nothing() -> None:
    instance = secrets.token_hex(8)
    children = ChildRegistry()
    async with running(spec_of("input()", instance=instance)) as process:
        before = open_fds()
        guard = Guard.start(instance, None, children)
        assert guard.pid in children
        await guard.aclose()
        assert open_fds() == before
        assert children.pids() == set()
        assert read_stat(guard.pid) is None
        assert is_alive(process.pid)
        await guard.aclose()


async def test_a_lost_guard_is_told_of_and_replaced() -> None:
    children = ChildRegistry()
    lost, lost_words = trio.open_memory_channel[str](10)
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:

            async def keep(*, task_status: trio.TaskStatus[Guard]) -> None:
                await supervise_guard("none", None, children, on_lost=lost.send_nowait, task_status=task_status)

            first: Guard = await nursery.start(keep)
            os.kill(first.pid, signal.SIGKILL)
            assert await lost_words.receive() == (f"the guard process {first.pid} killed by signal 9; starting another")
            await children.wait_change()
            while first.pid in children.pids() or not children.pids():
                await children.wait_change()
            (second,) = children.pids()
            assert second != first.pid
            assert is_alive(second)
            nursery.cancel_scope.cancel()
    assert read_stat(second) is None
    assert children.pids() == set()


async def test_the_supervisors_death_is_noticed_though_somebody_else_holds_the_pipe() -> None:
    # The guard's parent here is a script that leaves the writing end to a process without a marker.
    script = """
import os, subprocess, sys
reading, writing = os.pipe()
guard = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], sys.argv[2], str(os.getpid())], stdin=reading)
holder = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=[writing])
print(guard.pid, holder.pid, flush=True)
os.read(0, 1)
"""
    instance = secrets.token_hex(8)
    async with running(spec_of("import time; time.sleep(600)", instance=instance)) as worker:
        parent = await trio.to_thread.run_sync(
            lambda: subprocess.Popen(
                [sys.executable, "-S", "-c", script, guard_main.__file__, instance],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        assert parent.stdout is not None
        assert parent.stdin is not None
        guard, holder = map(int, parent.stdout.readline().split())
        try:
            parent.kill()
            assert await worker.wait_exit() == ExitStatus(signal=signal.SIGKILL)
            assert is_alive(holder)
        finally:
            os.kill(holder, signal.SIGKILL)
            parent.wait()
            parent.stdout.close()
            parent.stdin.close()
        assert wait_dead([guard], LIMIT) == []


def test_as_long_as_somebody_holds_the_pipe_the_guard_looks_again() -> None:
    """That somebody is a worker between fork and exec, which has no marker yet."""
    instance = secrets.token_hex(8)
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as supervisor:
        supervisor.wait()
    command = [sys.executable, "-I", "-S", guard_main.__file__, instance, str(supervisor.pid)]
    with subprocess.Popen(command, stdin=reading) as guard:
        os.close(reading)
        assert wait_dead([guard.pid], 1) == [guard.pid]
        with subprocess.Popen(["/bin/sleep", "600"], env={MARKER_VARIABLE: f"{instance}:w1"}) as late:
            os.close(writing)
            assert late.wait(LIMIT) == -signal.SIGKILL
        assert guard.wait(LIMIT) == 0


def test_a_worker_that_executes_its_program_after_it_has_closed_the_pipe_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = secrets.token_hex(8)
    pauses: list[float] = []
    late: list[subprocess.Popen[bytes]] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            late.append(subprocess.Popen(["/bin/sleep", "600"], env={MARKER_VARIABLE: f"{instance}:w1"}))

    monkeypatch.setattr(guard_main, "_is_pipe_closed", lambda _: True)
    monkeypatch.setattr(guard_main, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    assert guard_main.sweep(instance, None)
    assert late[0].wait(LIMIT) == -signal.SIGKILL
    assert sum(pauses) < 1, "nothing is left two seconds later"
