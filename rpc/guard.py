"""The supervisor's side of the guard: one small process that cleans up when the supervisor is killed.

It waits at a pipe. A supervisor that stops in order reports it; one that dies by any cause, SIGKILL
included, closes the pipe, and the guard kills whatever carries the instance's marker or is in its cgroup, within 2 s
where the machine allows it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Self

import trio

from errors import WorkerStartFailed
from rpc import guard_main
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry, ExitWatch
from rpc.pipes import Pipe
from rpc.rlimit_mark import clear_rlimit_mark
from rpc.transport import ExitStatus
from wire.procfs import identify

_EXIT_TIMEOUT = 2.0  # seconds that a guard gets to end after the clean shutdown
_MIN_RESTART_DELAY = 0.1  # seconds before a lost guard is replaced, doubled for every one lost in a row
_MAX_RESTART_DELAY = 10.0
_STABLE_AFTER = 60.0  # seconds a guard must live for its loss to count as the first one again


class Guard:
    """A running guard process."""

    @classmethod
    def start(
        cls,
        instance: str,
        cgroup: Cgroup | None,
        children: ChildRegistry,
        *,
        program: str = guard_main.__file__,
        more: Sequence[str] = (),
    ) -> Self:
        """Start a guard for ``instance`` and its cgroup, if there is one; a few milliseconds, on the main thread.

        ``program``: the file that it runs, with the arguments of ``rpc.guard_main`` and ``more``.
        Raises WorkerStartFailed when the machine cannot start another process.
        """
        arguments = [program, instance, str(os.getpid()), str(cgroup.path) if cgroup else "", *more]
        try:
            with ExitStack() as undo:
                popen, pipe = _spawn(arguments, undo)
                watch = ExitWatch.open(popen)
                undo.pop_all()
        except OSError as exc:
            raise WorkerStartFailed(f"the guard process could not be started: {exc}") from exc
        children.register(identify(popen.pid))
        return cls(popen, pipe, watch, children)

    def __init__(self, popen: subprocess.Popen[bytes], pipe: Pipe, watch: ExitWatch, children: ChildRegistry) -> None:
        self._popen = popen
        self._pipe = pipe
        self._watch = watch
        self._children = children

    @property
    def pid(self) -> int:
        """The guard's process id."""
        return self._popen.pid

    def send(self, message: bytes) -> None:
        """Write to a guard whose program reads more than the word of a clean shutdown."""
        with suppress(BrokenPipeError):  # it has ended; ``wait_exit`` says so
            self._pipe.write_nowait(message)

    async def wait_exit(self) -> ExitStatus:
        """Wait for the guard's end, which should not come before ``aclose``. For one waiter."""
        await self._watch.wait()
        return self._reap()

    async def aclose(self) -> None:
        """Report a clean shutdown and wait for the guard's end; no later death of the supervisor is noticed."""
        if self._popen.returncode is not None:
            return
        self.send(guard_main.CLEAN_SHUTDOWN)
        self._pipe.close()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _EXIT_TIMEOUT):
            await self._watch.wait()
        if self._popen.poll() is None:
            self._watch.signal(signal.SIGKILL)
        self._reap()

    def _reap(self) -> ExitStatus:
        code = self._popen.wait()
        self._children.unregister(self.pid)
        self._pipe.close()
        self._watch.close()
        return ExitStatus.from_returncode(code)


def _spawn(arguments: list[str], undo: ExitStack) -> tuple[subprocess.Popen[bytes], Pipe]:
    """Start the guard with nothing of ours in its hands but the reading end of a new pipe."""
    theirs, ours = os.pipe()
    undo.callback(os.close, ours)
    try:
        # a child inherits the mask: the guard is deaf from its first instruction
        with _signals_blocked(guard_main.IGNORED_SIGNALS):
            popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", *arguments],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
    finally:
        os.close(theirs)
    clear_rlimit_mark(popen.pid)  # a worker of another supervisor may have started us: its sweep must not end the guard
    undo.callback(popen.wait)
    undo.callback(popen.kill)  # before the pipe is closed, which would make it sweep
    os.set_blocking(ours, False)
    return popen, Pipe(ours)


@contextmanager
def _signals_blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Hold signals back in this thread for a moment."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def supervise_guard(
    instance: str,
    cgroup: Cgroup | None,
    children: ChildRegistry,
    *,
    on_lost: Callable[[str], None],
    task_status: trio.TaskStatus[Guard] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep one guard running until cancelled; reports started once the first one runs.

    Give it a nursery that ends after the workers' one: its cancellation is the clean shutdown. ``on_lost`` gets a
    sentence for every guard that ended by itself or could not be started again. Raises WorkerStartFailed for the first.
    """
    first = Guard.start(instance, cgroup, children)
    guard: Guard | None = first
    task_status.started(first)
    delay = _MIN_RESTART_DELAY
    try:
        while True:
            born = trio.current_time()
            if guard is not None:
                on_lost(f"the guard process {guard.pid} {await guard.wait_exit()}; starting another")
            delay = (
                _MIN_RESTART_DELAY if trio.current_time() - born > _STABLE_AFTER else min(delay * 2, _MAX_RESTART_DELAY)
            )
            await trio.sleep(delay)
            try:
                guard = Guard.start(instance, cgroup, children)
            except WorkerStartFailed as exc:
                guard = None
                on_lost(exc.message)
    finally:
        if guard is not None:
            await guard.aclose()
