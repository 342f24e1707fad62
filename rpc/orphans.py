"""Orphaned processes: adopted, reaped and swept, never a process of someone else.

A worker's tools may call setsid, fork twice and outlive everything. As *subreaper* the supervisor becomes the parent
of those, in place of pid 1; then it must reap them, too. Only ``pool run`` opts in: a library must not change whose
children its host process has.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import trio

from errors import UsageError
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.state_file import read_state
from rpc.sweep import ProcessSweep, SweepReport, kill_listed, kill_marked
from wire.procfs import ProcessIdentity, ProcessRef, ProcessStat, children_of, read_stat

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper(*, enabled: bool = True) -> bool:
    """Make this process the parent of its orphaned descendants (or no longer); False where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) == 0)


def _adopted_children(children: ChildRegistry) -> list[ProcessStat]:
    """Our children that this program has not started: orphans adopted as subreaper.

    A child in our own session is left out: every orphan comes from a worker, which has a session of its own; the
    other is a library's ordinary subprocess, whose exit status must not be stolen.
    """
    own_session = os.getsid(0)
    unknown = (read_stat(pid) for pid in children_of(os.getpid()) if pid not in children)
    return [stat for stat in unknown if stat is not None and stat.session != own_session]


class Reaper:
    """Reaps orphans that have ended, and only those: the exit status of our own children belongs to their waiters."""

    def __init__(self, children: ChildRegistry) -> None:
        self._children = children
        self.reaped = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reap until cancelled; on the main thread, started before the first worker."""
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            self.reap_nowait()
            async for _ in signals:  # one signal may stand for many ends: each look reaps all there are
                self.reap_nowait()

    def reap_nowait(self) -> int:
        """Reap every orphan that has ended by now; how many."""
        zombies = [stat.pid for stat in _adopted_children(self._children) if stat.state == "Z"]
        for pid in zombies:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        self.reaped += len(zombies)
        return len(zombies)


async def sweep_processes(entries: Iterable[ProcessIdentity], *, timeout: float = 2.0) -> SweepReport:  # noqa: ASYNC109  # bounds a thread
    """Kill the listed processes and all that carries their markers, where boot id, start time and marker agree."""
    return await trio.to_thread.run_sync(kill_listed, list(entries), timeout)


async def sweep_instance(instance: str, *, timeout: float = 2.0) -> SweepReport:  # noqa: ASYNC109  # bounds a thread
    """Kill everything that carries a marker of this supervisor instance, repeatedly until nothing is left."""
    return await trio.to_thread.run_sync(kill_marked, f"{instance}:", timeout)


async def sweep_adopted(children: ChildRegistry, *, timeout: float = 2.0) -> SweepReport:  # noqa: ASYNC109  # bounds a thread
    """Kill the orphans that we have adopted and their descendants, marked or not: the end of a graceful stop.

    Call it when no worker is left, for until then an orphan may be a live worker's background process.
    """
    sweep = ProcessSweep()
    for stat in _adopted_children(children):
        sweep.add(ProcessRef.of(stat))
    return await trio.to_thread.run_sync(sweep.kill_all, timeout)


async def sweep_previous(path: Path, *, timeout: float = 2.0) -> SweepReport:  # noqa: ASYNC109  # bounds a thread
    """Kill what the supervisor that wrote the state file ``path`` left behind; before anything is spawned.

    Raises UsageError if that supervisor still runs, StateFileCorrupt if the file cannot be understood.
    """
    state = read_state(path)
    if state is None:
        return SweepReport()
    if state.is_owner_alive():
        raise UsageError(
            f"another supervisor (pid {state.supervisor.pid}) runs on {path.parent}; stop it first, "
            f"or remove {path} where the directory is a copy of its own"
        )
    cgroup = Cgroup.from_previous(state.instance, Path(state.cgroup)) if state.cgroup else None
    if cgroup is not None:
        cgroup.kill()
    report = await sweep_processes(state.workers, timeout=timeout) + await sweep_instance(
        state.instance, timeout=timeout
    )
    if cgroup is not None:
        await trio.to_thread.run_sync(cgroup.wait_empty, timeout)
        cgroup.remove()
    return report
