"""A tool's process tree: found through ``/proc``, stopped as a whole, nothing left behind.

A process belongs to the tree when it descends from the tool's shell, or is in its session or process group (the shell
leads both). One that left all three, by ``setsid`` after its parent had ended, cannot be told from a stranger here.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import trio

__all__ = ["stop_tree", "wait_exited"]

TERM_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL; less than a supervisor gives the worker to end itself."""
KILL_PATIENCE = 5.0
"""Seconds to wait for the end after SIGKILL; longer only for a process stuck in the kernel."""


class _Row(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int


async def stop_tree(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to the tree, a grace, SIGKILL; done when the shell is reaped. Shielded: it is always brief."""
    with trio.CancelScope(shield=True), trio.move_on_after(KILL_PATIENCE), ExitStack() as closing:
        tree = _Tree(process.pid, closing) if sys.platform == "linux" else _Group(process)
        if tree.signal(signal.SIGTERM):
            with trio.move_on_after(TERM_GRACE):
                await tree.ended()
            while tree.signal(signal.SIGKILL):  # again: a process may have forked between the look and the signal
                await tree.ended()
        await wait_exited(process)
        process.wait()


async def wait_exited(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the exit without reaping: while the pid is not reaped, no stranger can have its number."""
    if sys.platform != "linux":  # no pidfd there, and the pid is reaped here
        await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


class _Group:
    """Without ``/proc`` and pidfds the process group is all that can be reached."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def signal(self, number: signal.Signals) -> bool:
        """Signal the group; whether there is one."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            return True
        return False

    async def ended(self) -> None:
        """Wait for the shell."""
        await wait_exited(self._process)


class _Tree:
    """The tree of ``root``, which must not have been reaped.

    Each process once seen is held by a pidfd, also when its parent has ended and nothing ties it to the tree any more.
    """

    def __init__(self, root: int, closing: ExitStack) -> None:
        self._root = root
        self._closing = closing
        self._held: dict[int, int] = {}

    def signal(self, number: signal.Signals) -> bool:
        """Look again, and signal every process of the tree; whether there was any."""
        for row in _members(self._root, self._held):
            if row.pid not in self._held:
                self._hold(row)
        for descriptor in self._held.values():
            with suppress(ProcessLookupError, PermissionError):  # ended since; or setuid: not ours to stop
                signal.pidfd_send_signal(descriptor, number)
        return bool(self._held)

    async def ended(self) -> None:
        """Wait until all that were signalled have ended."""
        for descriptor in list(self._held.values()):
            await trio.lowlevel.wait_readable(descriptor)
        self._held.clear()

    def _hold(self, row: _Row) -> None:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(row.pid)
            self._closing.callback(os.close, descriptor)
            now = _row(row.pid)
            if now is not None and now.started == row.started:  # else the number has a new owner
                self._held[row.pid] = descriptor


def _members(root: int, known: Collection[int]) -> list[_Row]:
    """The living processes in the session or group of ``root``, and what descends from it or from ``known``."""
    rows = {row.pid: row for row in _process_table()}
    members = {pid for pid, row in rows.items() if root in {pid, row.group, row.session} or pid in known}
    children: dict[int, list[int]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row.pid)
    frontier = list(members)
    while frontier:
        new = [pid for pid in children.get(frontier.pop(), ()) if pid not in members]
        members.update(new)
        frontier.extend(new)
    return [rows[pid] for pid in members if rows[pid].state not in {"Z", "X"}]


def _process_table() -> Iterator[_Row]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would build an object for each of thousands of entries
        if name.isdecimal() and (row := _row(int(name))) is not None:
            yield row


def _row(pid: int) -> _Row | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - see above
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None  # ended since it was listed
    return _Row(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))
