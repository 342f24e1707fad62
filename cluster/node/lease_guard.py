"""The guard process of a node: kills a link's workers when the node program is killed, and when its lease ends.

A node program that is suspended kills no one, so the lease is kept here too. Standard library only, started by path
with ``python -I -S``. Arguments: the instance, the node program's pid, its cgroup or nothing, the end of the lease.
On standard input: one letter, and after ``EXTENDED`` the new end of the lease. Times are those of ``boot_time``.
"""

import os
import select
import signal
import struct
import sys
import types
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    # Bare packages: an ``__init__.py`` may import what the guard does not have.
    for room in ("rpc", "wire"):
        package = types.ModuleType(room)
        package.__path__ = [str(Path(__file__).parents[2] / room)]
        sys.modules[room] = package

from rpc.cgroup import Cgroup
from rpc.guard_main import CLEAN_SHUTDOWN, IGNORED_SIGNALS, sweep
from wire.procfs import boot_time

EXTENDED, ENDING = b"x", b"e"
"""The lease ends later; the node program itself ends everything now."""
_END = struct.Struct("!d")
_GRACE = 0.5  # seconds that a node program gets to say that it has noticed the end of its lease
_MAX_WAIT = 1.0  # seconds: a poll does not count the time that the machine is suspended, the lease does


def extended(ends_at: float) -> bytes:
    """The message of a lease that ends later."""
    return EXTENDED + _END.pack(ends_at)


class LeaseWatch:
    """What the guard knows of the node program and its lease."""

    def __init__(self, program: int, ends_at: float) -> None:
        self._ends_at = ends_at
        self._is_ending = False
        self._data = b""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._pidfd: int | None = None
        with suppress(OSError, AttributeError):  # gone already, or a platform without pidfds: the pipe shows it
            self._pidfd = os.pidfd_open(program)
            self._poll.register(self._pidfd, select.POLLIN)
        self._is_known = os.getppid() == program  # asked after the pidfd was opened: so it is the node program's

    def wait(self) -> bool:
        """Block until everything is to be killed; False: the node program has done it itself.

        A program that does not say that it has noticed the end of its lease is suspended, perhaps while it starts a
        worker: it is killed first, so that nothing begins after the sweep.
        """
        while self._is_known:
            left = self._ends_at + _GRACE - boot_time()
            if left <= 0:
                if self._pidfd is not None and not self._is_ending:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                return True
            ready = self._poll.poll(min(left, _MAX_WAIT) * 1000)
            if ready and not self._read():
                return self._data[:1] != CLEAN_SHUTDOWN
        return True

    def _read(self) -> bool:
        """Take what the program says; False when it has said its last, or is gone."""
        os.set_blocking(0, False)
        try:
            said = os.read(0, 4096)
        except BlockingIOError:
            return False  # only the pidfd is ready: it is dead, though a process still holds the pipe
        self._data += said
        while self._data[:1] in (EXTENDED, ENDING) and said:
            if self._data[:1] == ENDING:
                self._is_ending, self._data = True, self._data[1:]
            elif len(self._data) > _END.size:
                (self._ends_at,) = _END.unpack_from(self._data, 1)
                self._data = self._data[1 + _END.size :]
            else:
                break
        return bool(said) and self._data[:1] != CLEAN_SHUTDOWN


def main(instance: str, program: str, cgroup: str, ends_at: str) -> int:
    """Wait, sweep, and answer by the exit code whether nothing is left."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if not LeaseWatch(int(program), float(ends_at)).wait():
        return 0
    return 0 if sweep(instance, Cgroup(Path(cgroup)) if cgroup else None) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
