"""Lifecycle of one worker process: its streams, its end, and nothing of it left behind.

The task that runs ``supervise`` owns the process: it drains stderr, awaits the exit, climbs the kill ladder when
``stop`` asks for it, reaps, and then kills whatever the worker left behind. When that task is cancelled the process
is killed at once. No process outlives ``supervise``.
"""

import os
import time
from collections.abc import Callable
from enum import StrEnum
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import Self, TypeVar

import trio

from errors import PoolError, WorkerExited
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry, ExitWatch
from rpc.pipes import Pipe
from rpc.settings import RpcSettings
from rpc.spawn import SpawnedProcess, WorkerSpec, start_process, watch_error
from rpc.stderr_log import LineLog, StderrTail
from rpc.sweep import ProcessSweep, SweepReport
from rpc.transport import Abort, ExitStatus, ProcessFacts
from rpc.workspace import fetch_workspace_file
from rpc.wrapper_watch import WrapperWatch
from wire.log_file import ENDED, STARTED
from wire.procfs import ProcessIdentity, identify, read_stat, read_usage
from wire.redaction import SecretMask

_SCAN_TIMEOUT = 2.0  # seconds that a look at its descendants may wait for a thread before the worker is killed anyway
_SWEEP_TIMEOUT = 2.0  # seconds that what a worker left behind gets to die of SIGKILL
_KILLED_BY_OTHERS = "not by the pool (out of memory?)"
_KILL_TIMEOUT = 5.0  # seconds that the worker itself gets; in uninterruptible sleep it may need more and is left

T = TypeVar("T")


class Rung(StrEnum):
    """The rungs of the kill ladder, in order."""

    ABORT = "abort"
    EOF = "eof"
    TERM = "term"
    KILL = "kill"


class WorkerProcess:
    """A running worker; implements ``rpc.transport.NodeProcess``. Made by ``spawn``; its owner runs ``supervise``.

    Attributes:
        worker_id, marker: as in the spec. identity: the process that was started.
        exit_status: how the worker ended; None while it lives.
        end_reason: why its owner ends it, for the log; None where it ends by itself.
        mask: hides the spec's secrets.
        last_rung: the highest rung of the kill ladder that was used; None if the worker ended by itself.
        leftovers: what was killed after the worker's own end; set when ``stop`` returns.
    """

    @classmethod
    def spawn(
        cls,
        spec: WorkerSpec,
        children: ChildRegistry,
        settings: RpcSettings,
        *,
        cgroups: Cgroup | None = None,
        started: SpawnedProcess | None = None,
        on_logged: Callable[[], None] = lambda: None,
    ) -> Self:
        """Start a worker and register it, in one step on the calling (main) thread; about half a millisecond.

        ``cgroups``: the instance's cgroup, where there is one. ``started``: the process, where ``spec`` was forked.
        ``on_logged``: called when its log has grown.
        Raises WorkerStartFailed; then nothing is left behind.
        """
        started = started or start_process(spec)
        try:
            watch = (
                WrapperWatch.of_worker(started, spec.marker, children)
                if spec.may_be_wrapper
                else ExitWatch.open(started.popen)
            )
        except OSError as exc:
            _discard_process(started)
            raise watch_error(spec, exc) from exc
        identity = identify(started.popen.pid, spec.marker)
        children.register(identity)
        return cls(
            spec,
            started,
            watch=watch,
            identity=identity,
            children=children,
            settings=settings,
            cgroups=cgroups,
            on_logged=on_logged,
        )

    def __init__(
        self,
        spec: WorkerSpec,
        started: SpawnedProcess,
        *,
        watch: ExitWatch,
        identity: ProcessIdentity,
        children: ChildRegistry,
        settings: RpcSettings,
        cgroups: Cgroup | None,
        on_logged: Callable[[], None],
    ) -> None:
        self.worker_id = spec.worker_id
        self.marker = spec.marker
        self._cwd = spec.cwd
        self.identity = identity
        self.last_rung: Rung | None = None
        self.leftovers = SweepReport()
        self._stdin, self._stdout, self._stderr = Pipe(started.stdin), Pipe(started.stdout), Pipe(started.stderr)
        self.wait_writable, self.wait_readable = self._stdin.wait_writable, self._stdout.wait_readable
        self.interrupt = self._stdout.interrupt
        self._watch = watch
        self._children = children
        self._settings = settings
        self._instance_cgroup = cgroups
        self._cgroup: Cgroup | None = None
        self.mask = SecretMask(spec.secrets)
        self._tail = StderrTail(mask=self.mask)
        self.end_reason: str | None = None
        self._log = LineLog(spec.log_path, settings.log_bytes, mask=self.mask, clock=time.time, on_written=on_logged)
        self._log.note(f"{STARTED} (agent {spec.agent or '-'}, pid {self.pid})")
        self._last_output = b""
        self._sweep = ProcessSweep(spec.marker)
        self._left_some = False
        self._abort: Abort | None = None
        self._stop_requested = trio.Event()
        self._grace_scope = trio.CancelScope()
        self.exit_status: ExitStatus | None = None
        self._exited = trio.Event()
        self._finalized = trio.Event()

    @property
    def pid(self) -> int:
        """The process that works: the one that was started, or the one that goes on for it."""
        return self._watch.pid

    @property
    def ended_in_order(self) -> bool:
        """Whether it ended by itself once its stdin was closed, with nothing of what it had started before left then.

        The process may be a wrapper, whose end is not that of the program that does the work.
        """
        ended = self.exit_status
        return self.last_rung is Rung.EOF and ended is not None and ended.code is not None and not self._left_some

    @property
    def is_suspended(self) -> bool:
        """Whether the process is suspended (SIGSTOP): alive, and deaf to everything but SIGKILL."""
        stat = read_stat(self.pid) if self.exit_status is None else None
        return stat is not None and stat.state in "Tt"

    # --- NodeProcess --------------------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """This machine."""
        return ""

    def facts(self) -> ProcessFacts:
        """Resident size, CPU time and whether it is suspended; empty once it is gone, and where there is no /proc."""
        usage = read_usage(self.pid)
        if usage is None:
            return ProcessFacts()
        return ProcessFacts(rss=usage.rss, cpu=usage.cpu, suspended=self.is_suspended)

    async def keep(self, transcript: str | None) -> None:
        """Nothing to do: what it writes is on this machine's disk."""

    async def prepare_resume(self, transcript: str) -> bool:  # noqa: ARG002 - the interface's
        """Nothing to do: it reads this machine's disk."""
        return True

    async def fetch(self, path: str, limit: int) -> bytes:
        """Read it from this machine's disk."""
        return await fetch_workspace_file(self._cwd, path, limit, self._children.file_limiter)

    # --- Transport ----------------------------------------------------------------------------------------------------

    def receive_nowait(self) -> bytes | None:
        """What lies ready, None when there is nothing now. After the end: what was written before, then ``b""``."""
        data = self._stdout.read_nowait()
        if data == b"" and self._stdout.is_closed:
            data, self._last_output = self._last_output, b""
        return data

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Write as much as fits without waiting; the number of bytes taken. Raises WorkerExited on a closed pipe."""
        try:
            return self._stdin.write_nowait(data)
        except BrokenPipeError as exc:
            how = f"has {self.exit_status}" if self.exit_status else "no longer reads its input"
            raise WorkerExited(
                f"worker {self.worker_id} {how}", worker=self.worker_id, stderr_tail=self.stderr_tail()
            ) from exc

    async def wait_exit(self) -> ExitStatus:
        """Wait for the worker's end; by then its last output can be received without waiting."""
        await self._exited.wait()
        return self.exit_status or ExitStatus()

    def has_ended(self) -> bool:
        """Whether the worker has ended, perhaps before ``wait_exit`` returns."""
        return self._watch.has_ended()

    def stderr_tail(self) -> str:
        """The last text the worker wrote to stderr, at most 64 KiB, without secrets of its environment."""
        return self._tail.text()

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """Pass the lines that go to the log, if there is one, to one listener as they come; None removes it."""
        self._log.listener = listener

    # --- the end ------------------------------------------------------------------------------------------------------

    async def stop(self, *, abort: Abort | None = None, force: bool = False) -> ExitStatus:
        """End the worker by the kill ladder; returns when nothing of it is left. All callers share one stop.

        ``force`` (also of a later caller) goes to SIGKILL at once. A caller that is cancelled does not stop the stop.
        """
        if not self._stop_requested.is_set():
            self._abort = abort
            self._stop_requested.set()
        if force:
            self._grace_scope.cancel()
        await self._finalized.wait()
        return self.exit_status or ExitStatus()

    async def supervise(self) -> None:
        """Own the process until nothing of it is left. Run it once, in the nursery that the process belongs to."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain_stderr)
                await self._enter_cgroup()
                nursery.start_soon(self._climb_when_requested)
                await self._watch.wait()
                nursery.cancel_scope.cancel()
        finally:
            await self._finalize()

    async def _drain_stderr(self) -> None:
        while (data := self._stderr.read_nowait()) != b"":
            if data is None:
                await self._stderr.wait_readable()
            else:
                self._record_stderr(data)
                await trio.lowlevel.checkpoint()

    def _record_stderr(self, data: bytes) -> None:
        self._tail.feed(data)
        self._log.feed(data)

    async def _enter_cgroup(self) -> None:
        """Put the process into a cgroup of its own; what it has forked by now is left to the marker."""
        if self._instance_cgroup is not None:
            self._cgroup = await self._run_in_thread(self._make_cgroup, self._instance_cgroup)

    def _make_cgroup(self, cgroups: Cgroup) -> Cgroup | None:
        cgroup = cgroups.for_worker(self.worker_id)
        if cgroup is None or cgroup.add(self.pid):
            return cgroup
        cgroup.remove()
        return None

    async def _climb_when_requested(self) -> None:
        await self._stop_requested.wait()
        with self._grace_scope:
            await self._climb()
        await self._record_descendants()
        self._apply_rung(Rung.KILL, SIGKILL)

    async def _climb(self) -> None:
        """The polite rungs. ``supervise`` cancels this at the exit, so a rung is left as soon as it was enough."""
        await self._record_descendants()
        if not self.is_suspended:  # a suspended process neither hears an abort nor sees its stdin close
            if self._abort is not None:
                await self._try_abort(self._abort)
            self._apply_rung(Rung.EOF)
            self._stdin.close()
            await trio.sleep(self._settings.eof_grace)
            await self._record_descendants()
        self._apply_rung(Rung.TERM, SIGTERM, SIGCONT)  # a suspended process acts on SIGTERM when it goes on
        await trio.sleep(self._settings.term_grace)

    async def _try_abort(self, abort: Abort) -> None:
        self._apply_rung(Rung.ABORT)
        with trio.move_on_after(self._settings.abort_grace):
            try:
                await abort()
            except PoolError:
                return  # a worker that cannot be asked to abort any more is on its way out already

    def _apply_rung(self, rung: Rung, *signals: int) -> None:
        self.last_rung = rung
        for number in signals:
            self._watch.signal(number)

    async def _record_descendants(self) -> None:
        """Give up where no thread is free in time: the kill must not wait."""
        with trio.move_on_after(_SCAN_TIMEOUT):
            await self._run_in_thread(self._sweep.add_descendants, self.identity.pid, self.pid)

    async def _finalize(self) -> None:
        """Kill if need be, reap, wake all waiters, then kill what is left; shielded.

        Each step is limited by itself, and none is left out because another one was late.
        """
        try:
            with trio.CancelScope(shield=True):
                if not self._watch.has_ended():
                    await self._record_descendants()
                    self._apply_rung(Rung.KILL, SIGKILL)
                    with trio.move_on_after(_KILL_TIMEOUT):
                        await self._watch.wait()
                self._record_exit()
                self.leftovers = await self._run_in_thread(self._kill_leftovers)
        finally:
            self._record_exit()
            self._finalized.set()

    def _record_exit(self) -> None:
        """Reap, keep the last output, close everything, wake all waiters; once."""
        if self._exited.is_set():
            return
        self._left_some = self._sweep.has_living()
        self._watch.signal_group(SIGKILL)  # the last time that its number is surely the worker's
        self.exit_status = self._watch.reap()
        self._children.unregister(self.identity.pid)
        self._last_output = self._stdout.read_rest()
        self._record_stderr(self._stderr.read_rest())
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self._watch.close()
        by_others = _KILLED_BY_OTHERS if self.exit_status.signal == SIGKILL and self.last_rung is None else None
        self._log.note("; ".join(filter(None, (f"{ENDED}: {self.exit_status}", self.end_reason or by_others))))
        self._log.close()
        self._exited.set()

    def _kill_leftovers(self) -> SweepReport:
        """Everything that carries the marker, descends from the worker, or sits in its cgroup (runs in a thread)."""
        if self._cgroup is not None:
            self._cgroup.kill()
        report = self._sweep.kill_all(_SWEEP_TIMEOUT)
        if self._cgroup is not None:
            self._cgroup.wait_empty(_SWEEP_TIMEOUT)
            self._cgroup.remove()
        return report

    async def _run_in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Looking through /proc and cgroup files blocks; its threads never wait behind unrelated work."""
        return await trio.to_thread.run_sync(work, *args, limiter=self._children.scan_limiter)


def _discard_process(started: SpawnedProcess) -> None:
    """A process that cannot be supervised must not exist."""
    started.popen.kill()
    started.popen.wait()
    for fd in (started.stdin, started.stdout, started.stderr):
        os.close(fd)
