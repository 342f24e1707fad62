"""Samples a supervisor from outside while the load runs: its processes in ``/proc``, its status, delays of the machine.

Workers are identified by the marker in their environment.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from stress.connection import ReconnectingClient
from stress.facts import (
    Journal,
    MachineDelay,
    ObservedProcess,
    ProcessSample,
    StatusSample,
    WaiterRow,
    WorkerRow,
)
from wire.procfs import ProcessRef, ProcessStat, all_pids, children_of, marker_of, read_stat

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ZOMBIE_STATE = "Z"
_SUPERVISOR_WORDS = {b"-m", b"cli", b"run"}


class ProcessScan(NamedTuple):
    """A supervisor's children at one moment: live workers in order of start, and those not reaped yet."""

    workers: tuple[ObservedProcess, ...]
    zombies: tuple[int, ...]


def resident_bytes(pid: int) -> int:
    """Its resident size; 0 = there is no such process."""
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def open_files(pid: int) -> int | None:
    """Number of open files; None = no such process, or no permission."""
    try:
        return sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None


def run_queue_seconds(pid: int) -> float:
    """Seconds that its main thread was runnable without a CPU, since its start; 0 = unknown."""
    try:
        return int((_PROC / str(pid) / "task" / str(pid) / "schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def marked_processes(instance: str) -> list[int]:
    """Every live process with the marker of that supervisor, whatever its parent."""
    return [pid for pid in all_pids() if _marker(pid).startswith(f"{instance}:") and _is_alive(pid)]


def _marker(pid: int) -> str:
    """``INSTANCE:WORKER`` or empty. Does not wait for a process inside exec: the next scan sees it."""
    return marker_of(pid, until=0.0) or ""


def signal_process(process: ObservedProcess, number: int) -> bool:
    """Signal this very process, never one that has reused its pid; whether it existed."""
    handle = ProcessRef(process.pid, process.started).open_pidfd()
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def find_supervisor(started: int) -> int:
    """The supervisor: the started process itself, or the one that a wrapper has started."""
    waiting = [started]
    while waiting:
        pid = waiting.pop(0)
        try:
            command = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if _SUPERVISOR_WORDS.issubset(command) and Path(os.fsdecode(command[0])).name.startswith("python"):
            return pid
        waiting += children_of(pid)
    return started


class ProcessTree:
    """One supervisor's children; the kind of each is looked up once.

    ``instance``: the marker of its workers; empty = unknown until the first one is seen.
    """

    def __init__(self, supervisor: int, instance: str = "") -> None:
        self.supervisor = supervisor
        self.instance = instance
        self._names: dict[tuple[int, int], str] = {}
        self._others: set[tuple[int, int]] = set()

    def scan(self) -> ProcessScan:
        """Its children now."""
        found, zombies = [], []
        for pid in children_of(self.supervisor):
            stat = read_stat(pid)
            if stat is None:
                continue
            if stat.is_dead:
                zombies += [pid] if stat.state == _ZOMBIE_STATE else []
            elif name := self._worker_name(pid, stat):
                found.append(ObservedProcess(pid, stat.start_time, name))
        return ProcessScan(tuple(sorted(found, key=lambda each: (each.started, each.pid))), tuple(zombies))

    def leftovers(self) -> list[int]:
        """Processes left after its end: marked ones, and children that were no workers."""
        others = [pid for pid, started in self._others if _is_alive(pid, started)]
        return sorted({*others, *(marked_processes(self.instance) if self.instance else [])})

    def _worker_name(self, pid: int, stat: ProcessStat) -> str:
        """The worker's name; empty = it is no worker, or between fork and exec, where it is unknown.

        Leftovers of a worker carry its marker too, but only workers lead their session.
        """
        key = (pid, stat.start_time)
        name = self._names.get(key)
        if name is None:
            instance, _, name = _marker(pid).partition(":")
            if not name or stat.session != pid:
                self._others.add(key)
                return ""
            self.instance = instance
            self._names[key] = name
            self._others.discard(key)
        return name


def _is_alive(pid: int, started: int | None = None) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.is_dead and started in (None, stat.start_time)


_SCAN_SECONDS = 0.05
_MEASURE_SECONDS = 1.0
_NAP_SECONDS = 0.02
_STATUS_SECONDS = 1.0
ANSWER_SECONDS = 60.0
"""Seconds after which a supervisor is taken to be unresponsive."""
_STATUS_SHARE = 0.02
"""Share of the supervisor's time that status requests may take."""


class _SampledPool(msgspec.Struct):
    max: int
    mode: str


class _SampledCounters(msgspec.Struct):
    grants: dict[str, int]
    releases: int
    lost: int
    active: int


class _SampledStatus(msgspec.Struct):
    pool: _SampledPool
    counters: _SampledCounters
    workers: tuple[WorkerRow, ...]
    waiting: tuple[WaiterRow, ...]


def read_status(document: Any, *, t: float, life: int, before: tuple[int, ...], after: tuple[int, ...]) -> StatusSample:
    """The checked part of a status document. Pure."""
    status = msgspec.convert(document, _SampledStatus)
    return StatusSample(
        t=t,
        life=life,
        mode=status.pool.mode,
        max=status.pool.max,
        workers=status.workers,
        waiting=status.waiting,
        before=before,
        after=after,
        grants=sum(status.counters.grants.values()),
        releases=status.counters.releases,
        lost=status.counters.lost,
        active=status.counters.active,
    )


class SupervisorSampler:
    """``process_tree`` and ``life``: the supervisor that is sampled now."""

    def __init__(
        self,
        connection: ReconnectingClient,
        *,
        process_tree: Callable[[], ProcessTree | None],
        life: Callable[[], int],
        journal: Journal,
    ) -> None:
        self._connection = connection
        self._process_tree = process_tree
        self._life = life
        self._journal = journal
        self._last: ProcessScan | None = None
        self._measured = -_MEASURE_SECONDS

    async def watch_processes(self) -> None:
        """Scan twenty times a second; record changes, and once a second the supervisor's size."""
        while True:
            self.sample_processes()
            await trio.sleep(_SCAN_SECONDS)

    def sample_processes(self) -> None:
        """Scan once."""
        process_tree = self._process_tree()
        if process_tree is None:
            self._last = None
            return
        look, now = process_tree.scan(), self._journal.now()
        measures = now - self._measured >= _MEASURE_SECONDS
        if look == self._last and not measures:
            return
        self._last = look
        pid = process_tree.supervisor
        size = {"rss": resident_bytes(pid), "fds": open_files(pid)} if measures else {}
        self._measured = now if measures else self._measured
        self._journal.record(
            ProcessSample(t=now, life=self._life(), supervisor=pid, workers=look.workers, zombies=look.zombies, **size)
        )

    async def watch_status(self) -> None:
        """Sample status once a second, or less often if it takes long."""
        while True:
            asked = self._journal.now()
            life, before = self._life(), self._pids()
            document = None
            with trio.move_on_after(ANSWER_SECONDS):
                document = await self._connection.request("status")
            if document is None:
                what = f"the supervisor did not answer status in {ANSWER_SECONDS:g} s"
                self._journal.record_violation(what)
            elif self._life() == life:
                self._journal.record(
                    read_status(document, t=self._journal.now(), life=life, before=before, after=self._pids())
                )
            took = self._journal.now() - asked
            await trio.sleep(max(_STATUS_SECONDS, took / _STATUS_SHARE))

    async def watch_delays(self) -> None:
        """Record each second and at the end the machine's delay.

        It is the greatest overrun of our own sleeps, or the time that the supervisor was runnable without a CPU,
        whichever is more.
        """
        reported, queued = self._journal.now(), self._run_queue_seconds()
        while True:
            worst, before = 0.0, queued
            try:
                while self._journal.now() - reported < _MEASURE_SECONDS:
                    began = self._journal.now()
                    await trio.sleep(_NAP_SECONDS)
                    worst = max(worst, self._journal.now() - began - _NAP_SECONDS)
            finally:
                reported, queued = self._journal.now(), self._run_queue_seconds()
                self._journal.record(MachineDelay(t=reported, seconds=max(worst, queued - before)))

    def _run_queue_seconds(self) -> float:
        process_tree = self._process_tree()
        return 0.0 if process_tree is None else run_queue_seconds(process_tree.supervisor)

    def _pids(self) -> tuple[int, ...]:
        process_tree = self._process_tree()
        return () if process_tree is None else tuple(worker.pid for worker in process_tree.scan().workers)
