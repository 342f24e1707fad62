"""A tool's process tree: found through ``/proc``, stopped as a whole, nothing left behind.

A process belongs to the tree when it descends from the tool's shell, or is in its session or process group (the shell
leads both). One that left all three, by ``setsid`` after its parent had ended, cannot be told from a stranger here.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
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
    with trio.CancelScope(shield=True), trio.move_on_after(KILL_PATIENCE):
        anybody = True
        with trio.move_on_after(TERM_GRACE):
            anybody = await _signal_and_wait(process, signal.SIGTERM)
        while anybody:  # again: a process may have forked between the look and the signal
            anybody = await _signal_and_wait(process, signal.SIGKILL)
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


async def _signal_and_wait(process: "subprocess.Popen[bytes]", number: signal.Signals) -> bool:
    """Signal all of the tree and wait until they have ended; False when nobody was there."""
    if sys.platform != "linux":  # no /proc there: the process group is all that can be reached
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        await wait_exited(process)
        return False
    with ExitStack() as closing:
        descriptors: list[int] = []
        for row in _members(process.pid):
            with suppress(ProcessLookupError, PermissionError):  # ended since; or setuid: not ours to stop
                descriptor = os.pidfd_open(row.pid)
                closing.callback(os.close, descriptor)
                now = _row(row.pid)
                if now is not None and now.started == row.started:  # else the number has a new owner
                    signal.pidfd_send_signal(descriptor, number)
                    descriptors.append(descriptor)
        for descriptor in descriptors:
            await trio.lowlevel.wait_readable(descriptor)
        return bool(descriptors)


def _members(root: int) -> list[_Row]:
    rows = {row.pid: row for row in _process_table()}
    members = {pid for pid, row in rows.items() if root in {pid, row.group, row.session}}
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
