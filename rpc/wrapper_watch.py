"""The end of a worker whose program may be a wrapper: that of the last process which holds both of its pipes.

A wrapper starts the real agent and may exit at once. The agent then has the worker's marker, its standard input and its
standard output; a tool that an agent leaves behind may have the last of these, not both.
"""

import os
import select
import signal
from typing import NamedTuple, Self

import trio

from rpc.children import Child, ChildRegistry, ExitWatch
from rpc.spawn import SpawnedProcess
from rpc.sweep import ProcessSweep, send_signal
from rpc.transport import ExitStatus
from wire.procfs import open_files, read_stat


class _Agent(NamedTuple):
    """The process that goes on for one that has ended."""

    pid: int
    pidfd: int


class WrapperWatch(ExitWatch):
    """The end of a child and of those that go on in its place; signals reach its process group and the latter.

    A child that is killed by a signal which is not ours is the end: to kill the process that a worker shows is to kill
    the worker. So is every exit where the platform has no pidfds or shows no processes, or no file handle is left.
    """

    @classmethod
    def of_worker(cls, started: SpawnedProcess, marker: str, children: ChildRegistry) -> Self:
        """Watch a child that is not reaped yet. Raises OSError when the table of files is full."""
        pipes = frozenset(f"pipe:[{os.fstat(descriptor).st_ino}]" for descriptor in (started.stdin, started.stdout))
        pidfd = os.pidfd_open(started.popen.pid) if hasattr(os, "pidfd_open") else None
        return cls(started.popen, pidfd, pipes, marker, children)

    def __init__(
        self, popen: Child, pidfd: int | None, pipes: frozenset[str], marker: str, children: ChildRegistry
    ) -> None:
        super().__init__(popen, pidfd)
        self._pipes = pipes
        self._sweep = ProcessSweep(marker)
        self._limiter = children.scan_limiter
        self._agent: _Agent | None = None
        self._is_replaced = False
        self._sent: set[int] = set()

    @property
    def pid(self) -> int:
        """The process that works: the child, or the one that goes on for it."""
        return super().pid if self._agent is None else self._agent.pid

    async def wait(self) -> None:
        """Wait until none of them goes on. For one task."""
        await super().wait()
        while self._agent is not None or await self._find_next():
            await self._wait_agent()

    def has_ended(self) -> bool:
        """Whether the child has ended, and the one that was seen to go on for it."""
        return super().has_ended() and (self._agent is None or _is_readable(self._agent.pidfd))

    def signal(self, number: int) -> None:
        """Signal the child's group and the process that goes on for it; nothing happens if they have ended."""
        self._sent.add(number)
        self.signal_group(number)
        self._signal_agent(number)

    def reap(self) -> ExitStatus:
        """Reap the child. How the worker ended is not known where another process went on for it."""
        status = super().reap()
        return ExitStatus() if self._is_replaced else status

    def close(self) -> None:
        """Give the pidfds back."""
        super().close()
        self._forget_agent()

    async def _find_next(self) -> bool:
        if not self._may_go_on():
            return False
        self._agent = await trio.to_thread.run_sync(self._find_agent, limiter=self._limiter)
        if self._agent is None:
            return False
        self._is_replaced = True
        for number in self._sent:
            self._signal_agent(number)
        return True

    def _may_go_on(self) -> bool:
        if self._pidfd is None or signal.SIGKILL in self._sent:
            return False
        return bool(self._sent) or self.has_exited()

    def _find_agent(self) -> _Agent | None:
        """The oldest process of the worker that holds both pipes: a thread looks through /proc."""
        for process in sorted(self._sweep.find_marked(), key=lambda found: found.start_time):
            try:
                pidfd = process.open_pidfd()
            except OSError:
                return None
            if pidfd is not None:
                if self._pipes <= open_files(process.pid):
                    return _Agent(process.pid, pidfd)
                os.close(pidfd)
        return None

    def _signal_agent(self, number: int) -> None:
        """Only where the signal to the group has not reached it: two SIGTERM mean haste to some."""
        if self._agent is not None:
            stat = read_stat(self._agent.pid)
            if stat is not None and stat.group != super().pid:
                send_signal(self._agent.pid, self._agent.pidfd, number)

    async def _wait_agent(self) -> None:
        if self._agent is not None:
            await trio.lowlevel.wait_readable(self._agent.pidfd)
            self._forget_agent()

    def _forget_agent(self) -> None:
        if self._agent is not None:
            pidfd, self._agent = self._agent.pidfd, None
            trio.lowlevel.notify_closing(pidfd)
            os.close(pidfd)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
