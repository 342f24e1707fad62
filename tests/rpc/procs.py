"""What the process tests share: small children, and looking at processes from outside."""

import os
import secrets
import select
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec, worker_environment
from rpc.transport import Transport
from wire.procfs import read_stat

LIMIT = 20  # seconds that no wait of these tests comes near

# A worker's tool that leaves no trace of descent: two forks, a session of its own, all pipes kept. Its pid is printed
# once the process in the middle is gone, too.
DOUBLE_FORK = """
import os, time
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(tell, b"%d\\n" % os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
os.write(1, os.read(told, 32))
"""


# The same tool, as a program with an empty environment that keeps no inherited file open but its output, and that only
# until its pid is said. ``{unmark}`` is what it does first.
HIDDEN = """
import os, sys
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(tell, 1)
        os.set_inheritable(1, True)
        os.closerange(2, 1000)
        tool = "import os, resource, time; {unmark}; os.write(1, b'%d' % os.getpid()); os.close(1); time.sleep(600)"
        os.execve(sys.executable, ["python", "-S", "-c", tool], {{}})
    os._exit(0)
os.wait()
os.write(1, os.read(told, 32) + b"\\n")
"""
HIDDEN_FROM_ENVIRONMENT = HIDDEN.format(unmark="pass")
HIDDEN_COMPLETELY = HIDDEN.format(unmark="resource.setrlimit(resource.RLIMIT_RTTIME, (-1, -1))")


def spec_of(
    code: str,
    *,
    worker_id: str = "w1",
    instance: str = "",
    env: Sequence[tuple[str, str]] = (),
    log_path: Path | None = None,
) -> WorkerSpec:
    """A Python one-liner as a worker of an instance of its own."""
    marker = f"{instance or secrets.token_hex(8)}:{worker_id}"
    environment = worker_environment(RpcSettings(), os.environ, env, marker)
    return WorkerSpec(
        worker_id=worker_id,
        marker=marker,
        argv=(sys.executable, "-I", "-S", "-c", code),
        env=tuple(environment.items()),
        cwd="/",
        log_path=log_path,
    )


@asynccontextmanager
async def running(
    spec: WorkerSpec,
    *,
    children: ChildRegistry | None = None,
    settings: RpcSettings | None = None,
    cgroups: Cgroup | None = None,
) -> AsyncIterator[WorkerProcess]:
    """A supervised worker; killed at the end of the block, if it still lives."""
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            process = WorkerProcess.spawn(
                spec, ChildRegistry() if children is None else children, settings or RpcSettings(), cgroups=cgroups
            )
            nursery.start_soon(process.supervise)
            yield process
            nursery.cancel_scope.cancel()


async def receive(transport: Transport) -> bytes:
    """The next piece of output; ``b""`` at its end."""
    data = None
    while data is None:
        await transport.wait_readable()
        data = transport.receive_nowait()
    return data


async def read_line(process: WorkerProcess) -> str:
    """The next output of a worker that prints one short line at a time."""
    return (await receive(process)).decode().strip()


async def read_all(process: WorkerProcess) -> bytes:
    """A worker's output to its end."""
    chunks = []
    while data := await receive(process):
        chunks.append(data)
    return b"".join(chunks)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, other than as a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"


def wait_dead(pids: Sequence[int], seconds: float) -> list[int]:
    """Wait for the end of processes that are no children of ours; those that still live after ``seconds``."""
    alive = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            alive.append(pid)
        os.close(fd)
    return alive


def open_fds() -> set[str]:
    """Our own file descriptors with what they refer to."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return found
