"""Child processes: the registry that reaper, state file and status read; exit waiting and signals through a pidfd."""

import os
import signal
import subprocess
from contextlib import suppress

import trio

from rpc.transport import ExitStatus
from wire.procfs import ProcessIdentity

_MAX_SCAN_THREADS = 4  # more would fight the event loop for the interpreter when many workers end at once
_MAX_FILE_THREADS = 4


class ChildRegistry:
    """Children of this program. A pid enters in the step that spawns it and leaves in the one that reaps.

    A process that is started by other means while an orphan reaper runs must be registered here too, or started
    without a session of its own (the reaper leaves those alone).
    """

    def __init__(self) -> None:
        self._children: dict[int, ProcessIdentity] = {}
        self._changed = trio.Event()
        self.scan_limiter = trio.CapacityLimiter(_MAX_SCAN_THREADS)
        """How many threads may look through /proc for descendants at the same time."""
        self.file_limiter = trio.CapacityLimiter(_MAX_FILE_THREADS)
        """How many may read files of workspaces; one that hangs in a file system keeps its place."""

    def register(self, child: ProcessIdentity) -> None:
        """A child was spawned; call it before anything else can run."""
        self._children[child.pid] = child
        self._changed.set()

    def unregister(self, pid: int) -> None:
        """A child was reaped; its pid may be reused from now on."""
        if self._children.pop(pid, None) is not None:
            self._changed.set()

    def __contains__(self, pid: int) -> bool:
        return pid in self._children

    def pids(self) -> set[int]:
        """All registered pids."""
        return set(self._children)

    def workers(self) -> list[ProcessIdentity]:
        """The children that carry a marker, oldest first."""
        return [child for child in self._children.values() if child.marker]

    async def wait_change(self) -> None:
        """Wait until the list has changed since the last call; changes in between count once. For one waiter."""
        await self._changed.wait()
        self._changed = trio.Event()


class ForkedChild:
    """A child that another process has forked for us: what we need of ``subprocess.Popen``. For one thread."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._is_reaped = False

    def poll(self) -> int | None:
        """Reap it if it has ended; how it did. None also where it is not known: an orphan reaper was faster."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        """Block until it has ended, and reap it."""
        return self._reap(0)

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        self.poll()
        if not self._is_reaped:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if not self._is_reaped:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                self._is_reaped = True
            else:
                if pid:
                    self._is_reaped, self.returncode = True, os.waitstatus_to_exitcode(status)
        return self.returncode


Child = subprocess.Popen[bytes] | ForkedChild


class ExitWatch:
    """One child's end. Waiting does not reap: the owner of the child does, once."""

    def __init__(self, popen: Child, pidfd: int | None) -> None:
        self._popen = popen
        self._pidfd = pidfd
        self._thread = trio.CapacityLimiter(1)

    @classmethod
    def open(cls, popen: Child) -> "ExitWatch":
        """Watch a child that is not reaped yet. Raises OSError when the table of files is full."""
        return cls(popen, os.pidfd_open(popen.pid) if hasattr(os, "pidfd_open") else None)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._popen.pid

    async def wait(self) -> None:
        """Wait until the child has ended."""
        if self._pidfd is None:
            # An abandoned thread ends with the child.
            await trio.to_thread.run_sync(_wait_blocking, self._popen, abandon_on_cancel=True, limiter=self._thread)
        else:
            await trio.lowlevel.wait_readable(self._pidfd)

    def has_ended(self) -> bool:
        """Whether the child has ended; its pid stays taken where the platform can do that."""
        try:
            return _poll_exit(self._popen) is not None
        except ChildProcessError:
            return self._popen.poll() is not None

    def has_exited(self) -> bool:
        """Whether the child has ended by itself, by no signal; False where it is not known any more."""
        with suppress(ChildProcessError):
            ended = _poll_exit(self._popen)
            return ended is not None and ended.si_code == os.CLD_EXITED
        return False

    def signal_group(self, number: int) -> None:
        """Signal the process group that the child was started to lead, unless its pid may have been reused.

        No process of the group escapes by forking between a scan and its signal.
        """
        with suppress(ChildProcessError, ProcessLookupError, PermissionError):
            _poll_exit(self._popen)
            os.killpg(self._popen.pid, number)

    def signal(self, number: int) -> None:
        """Signal the child; nothing happens if it has ended."""
        if self._pidfd is None:
            self._popen.send_signal(number)  # looks first whether the child has ended
            return
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return  # it was faster

    def reap(self) -> ExitStatus:
        """Reap the child; how it ended, unknown where it has not, or another one has reaped it."""
        code = self._popen.poll()
        return ExitStatus() if code is None else ExitStatus.from_returncode(code)

    def close(self) -> None:
        """Give the pidfd back."""
        if self._pidfd is not None:
            trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def _poll_exit(popen: Child) -> os.waitid_result | None:
    """How the child ended, None if it did not; its pid stays taken. ChildProcessError: reaped, or not known."""
    if popen.returncode is not None or not hasattr(os, "waitid"):
        raise ChildProcessError
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _wait_blocking(popen: Child) -> None:
    """Block until the child has ended, leaving its pid taken where the platform can do that."""
    if not hasattr(os, "waitid"):
        popen.wait()  # reaps; Popen's own lock keeps two threads from doing it twice
        return
    with suppress(ChildProcessError):  # ended and reaped before this thread began to wait
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
