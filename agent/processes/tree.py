"""A command's process tree: found through ``/proc``, stopped as a whole, nothing left behind.

A process belongs to the tree when it descends from the command's shell, is in its session or process group (the shell
leads both), or carries the mark that the shell was given in its environment. One that left all of them, with an emptied
environment and by ``setsid`` after its parent had ended, cannot be recognised.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress

import trio

from wire.procfs import ProcessRef, ProcessStat, all_pids, read_environment, read_stat

MARK_VARIABLE = "AGENT_EXEC_ID"
"""The environment variable that everything a command starts inherits; its value is the command's alone."""
TERM_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
CANCELLED_GRACE = 0.5
"""The same when the stop is cancelled, as at the end of the worker: less than a supervisor gives it to end itself."""
KILL_TIMEOUT = 5.0
"""Seconds to wait for the end after SIGKILL; longer only for a process stuck in the kernel."""
_EXEC_TIMEOUT = 0.25  # seconds that a process may take inside exec


class ShellProcess:
    """The shell of a command: its exit can be waited for without reaping it.

    While the pid is not reaped, no stranger can have its number. Raises OSError where no file can be opened any more.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        self.process = process
        self.pid = process.pid
        self.mark = f"{MARK_VARIABLE}={mark}".encode()
        self._pidfd = os.pidfd_open(process.pid) if sys.platform == "linux" else None

    async def wait_exited(self) -> None:
        """Wait for the exit; the tree may live on."""
        if self._pidfd is None:  # no pidfd there, and the pid is reaped here
            await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        else:
            await trio.lowlevel.wait_readable(self._pidfd)

    def close(self) -> None:
        """Give the handle back; harmless when repeated."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


async def stop_tree(leader: ShellProcess, grace: float = TERM_GRACE) -> None:
    """SIGTERM to the tree, ``grace`` seconds, SIGKILL; done when the tree is gone and the shell is reaped.

    A cancelled stop shortens the grace and is carried through. Never takes longer than the grace and the patience.
    """
    with ExitStack() as closing:
        tree = _ProcessTree(leader, closing) if sys.platform == "linux" else _ProcessGroup(leader)
        if not tree.signal(signal.SIGTERM):
            leader.process.wait()
            return
        try:
            await _await_end(tree, grace)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await _await_end(tree, CANCELLED_GRACE)
            raise
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(KILL_TIMEOUT):
                while tree.signal(signal.SIGKILL):  # again: a process may have forked between the look and the signal
                    await tree.wait_ended()
                await leader.wait_exited()
                leader.process.wait()


async def _await_end(tree: "_ProcessTree | _ProcessGroup", seconds: float) -> None:
    with trio.move_on_after(seconds):
        await tree.wait_ended()


class _ProcessGroup:
    """Without ``/proc`` and pidfds the process group is all that can be reached."""

    def __init__(self, leader: ShellProcess) -> None:
        self._shell = leader

    def signal(self, number: signal.Signals) -> bool:
        """Signal the group; whether there is one."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._shell.pid, number)
            return True
        return False

    async def wait_ended(self) -> None:
        """Wait for the shell."""
        await self._shell.wait_exited()


class _ProcessTree:
    """The tree of a shell that must not have been reaped.

    Each process once seen is held by a pidfd, also when its parent has ended and nothing ties it to the tree any more.
    """

    def __init__(self, leader: ShellProcess, closing: ExitStack) -> None:
        self._shell = leader
        self._closing = closing
        self._pidfds: dict[int, int] = {}

    def signal(self, number: signal.Signals) -> bool:
        """Look again, and signal every process of the tree; whether there was any."""
        for row in _members(self._shell, self._pidfds):
            if row.pid not in self._pidfds and (descriptor := ProcessRef.of(row).open_pidfd()) is not None:
                self._closing.callback(os.close, descriptor)
                self._pidfds[row.pid] = descriptor
        for descriptor in self._pidfds.values():
            with suppress(ProcessLookupError, PermissionError):  # ended since; or setuid: not ours to stop
                signal.pidfd_send_signal(descriptor, number)
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # one that is stopped hears nothing else
        return bool(self._pidfds)

    async def wait_ended(self) -> None:
        """Wait until all that were signalled have ended."""
        for descriptor in list(self._pidfds.values()):
            await trio.lowlevel.wait_readable(descriptor)
        self._pidfds.clear()


def _members(leader: ShellProcess, known: Collection[int]) -> list[ProcessStat]:
    """The living processes of the shell's session or group, those with its mark, and what descends from any of them."""
    rows = {row.pid: row for row in _process_table()}
    root = leader.pid
    members = {pid for pid, row in rows.items() if root in {pid, row.group, row.session} or pid in known}
    children: dict[int, list[int]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row.pid)
    _add_descendants(members, children)
    # Check the mark only of processes that nothing else ties to the shell; none older than the shell has it.
    oldest = rows[root].start_time if root in rows else 0
    members.update(row.pid for row in rows.values() if _is_marked(row, members, oldest, leader.mark))
    _add_descendants(members, children)
    return [rows[pid] for pid in members if not rows[pid].is_dead]


def _add_descendants(members: set[int], children: dict[int, list[int]]) -> None:
    frontier = list(members)
    while frontier:
        new = [pid for pid in children.get(frontier.pop(), ()) if pid not in members]
        members.update(new)
        frontier.extend(new)


def _is_marked(row: ProcessStat, members: Collection[int], oldest: int, mark: bytes) -> bool:
    if row.pid in members or row.start_time < oldest or row.is_dead:
        return False
    return mark in read_environment(row.pid, time.monotonic() + _EXEC_TIMEOUT).split(b"\0")


def _process_table() -> Iterator[ProcessStat]:
    for pid in all_pids():
        if _has_session(pid) and (row := read_stat(pid)) is not None:
            yield row


def _has_session(pid: int) -> bool:
    """Cheaper than reading ``/proc``: kernel threads have none, and everything of ours has one of this namespace."""
    try:
        return os.getsid(pid) != 0
    except (ProcessLookupError, PermissionError):
        return False
