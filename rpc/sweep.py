"""Kill leftover processes by marker and ancestry; never a reused pid. Standard library only: the guard imports it.

A process is signalled only through a pidfd whose identity was checked after it was opened (``ProcessRef.open_pidfd``).
Zombies are left alone: they are dead already, and their environment cannot be read.
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

from rpc.rlimit_mark import instance_number, mark_number, rlimit_mark_of
from wire.procfs import (
    EXEC_TIMEOUT,
    ProcessIdentity,
    ProcessRef,
    all_pids,
    boot_id,
    descendants_of,
    marker_of,
    read_stat,
)

_BATCH_SIZE = 128  # pidfds held at a time
_MAX_SCANS = 20  # of the list of processes, until it shows no new one
_BATCH_TIMEOUT = 0.25  # seconds; one that does not die (uninterruptible sleep) must not keep the others alive
_RECHECK_DELAY = 0.05  # seconds between two looks where there is no pidfd to wait on


class SweepReport(NamedTuple):
    """What a sweep did. ``left``: what would not die in time; ``unrelated``: pids that other processes have now."""

    killed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    unrelated: tuple[int, ...] = ()

    def __add__(self, other: "SweepReport") -> "SweepReport":  # type: ignore[override]  # reports add up, not tuples
        return SweepReport(self.killed + other.killed, self.left + other.left, self.unrelated + other.unrelated)


def send_signal(pid: int, pidfd: int | None, number: int) -> bool:
    """Signal a process that was identified after ``pidfd`` was opened; False when it is gone or not ours to signal."""
    try:
        if pidfd is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class ProcessSweep:
    """Everything that belongs to one dead or dying worker, or to a whole supervisor: remembered, found, killed.

    ``add_descendants`` remembers the descendants of a process while they can still be seen; the ``markers`` find
    processes that carry one of them, in the environment or as a limit (a marker that ends in its colon stands for all
    workers of that instance). ``kill_all`` kills both, and repeats until a pass finds none, since a process may fork
    while it dies.
    """

    def __init__(self, *markers: str) -> None:
        self._instances = tuple(marker for marker in markers if marker.endswith(":"))
        self._workers = frozenset(markers).difference(self._instances)
        numbers = map(mark_number, self._workers)  # one that holds no worker would stand for all of them
        self._numbers = {number for number in numbers if number != instance_number(number)}
        self._numbers.update(map(mark_number, self._instances))
        self._targets: set[ProcessRef] = set()
        self._killed: set[int] = set()

    def add_descendants(self, *roots: int) -> None:
        """Remember everything that descends from ``roots`` now (not the roots themselves)."""
        self._targets = {target for target in self._targets if target.is_alive()}
        self._targets.update(ProcessRef.of(stat) for stat in descendants_of(roots))

    def add(self, target: ProcessRef) -> None:
        """Remember one process."""
        self._targets.add(target)

    def has_living(self) -> bool:
        """Whether something of what was remembered is alive; looks at no more than that."""
        return any(target.is_alive() for target in self._targets)

    def kill_all(self, timeout: float) -> SweepReport:
        """Kill all that is noted, marked, or descends from either; after ``timeout`` seconds no new round begins.

        So this blocks for that time and one round more (``_BATCH_TIMEOUT`` a batch). What the first look finds is
        killed in any case, also where this process was held up itself.
        """
        targets = self._find_targets()
        deadline = time.monotonic() + timeout
        while targets:
            for start in range(0, len(targets), _BATCH_SIZE):
                self._kill_batch(targets[start : start + _BATCH_SIZE])
            targets = self._find_targets()
            if time.monotonic() >= deadline:
                break
        return SweepReport(tuple(sorted(self._killed)), tuple(target.pid for target in targets))

    def _find_targets(self) -> list[ProcessRef]:
        """Who is left: the noted, the marked, and their descendants that hide their marker."""
        roots = {target for target in (*self._targets, *self.find_marked()) if target.is_alive()}
        family = {ProcessRef.of(stat) for stat in descendants_of({target.pid for target in roots})}
        living = roots | {target for target in family if target.is_alive()}
        # A supervisor that a worker's tool started may sweep that very worker later: it spares itself.
        self._targets = {target for target in living if target.pid != os.getpid()}
        return sorted(self._targets)

    def find_marked(self) -> Iterator[ProcessRef]:
        """Who carries the marker: a look at all processes, then again and again at those that came meanwhile.

        One that forks and ends all the time is never where a single look expects it.
        """
        seen: set[int] = set()
        until = time.monotonic() + EXEC_TIMEOUT
        for _ in range(_MAX_SCANS):
            fresh = set(all_pids()) - seen
            if not fresh:
                return
            seen |= fresh
            for pid in fresh:
                # Asked before and after: so the start time is that of the process with the marker.
                if self._is_marked(pid, until) and (stat := read_stat(pid)) and self._is_marked(pid, until):
                    yield ProcessRef.of(stat)

    def _is_marked(self, pid: int, until: float) -> bool:
        if pid == os.getpid():
            return False  # while it starts a worker, the supervisor carries that worker's limit itself
        number = rlimit_mark_of(pid)
        if number is not None and not self._numbers.isdisjoint((number, instance_number(number))):
            return True
        marker = marker_of(pid, until)
        return marker is not None and (marker in self._workers or marker.startswith(self._instances))

    def _kill_batch(self, batch: Iterable[ProcessRef]) -> None:
        """Kill a batch and wait until it is dead, for ``_BATCH_TIMEOUT`` at most."""
        with ExitStack() as stack:
            dying: list[int] = []
            lingering = False
            for target in batch:
                pidfd = None
                with suppress(AttributeError, OSError):  # no pidfds, or no free descriptor: the check has to do
                    pidfd = target.open_pidfd()
                if pidfd is not None:
                    stack.callback(os.close, pidfd)
                elif not target.is_alive():
                    continue
                is_sent = send_signal(target.pid, pidfd, signal.SIGKILL)
                if is_sent:
                    self._killed.add(target.pid)
                if is_sent and pidfd is not None:
                    dying.append(pidfd)
                else:
                    lingering = True
            _wait_for_exits(dying, lingering=lingering)


def _wait_for_exits(pidfds: list[int], *, lingering: bool) -> None:
    """Wait until every pidfd reports the end of its process; for those that have none, as long as a death may take."""
    deadline = time.monotonic() + _BATCH_TIMEOUT
    poll = select.poll()
    if lingering:
        poll.poll(_RECHECK_DELAY * 1000)
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    waiting = set(pidfds)
    while waiting and (remaining := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(remaining * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)


def kill_marked(marker: str, timeout: float) -> SweepReport:
    """Kill what carries the marker, and its descendants; blocks as ``ProcessSweep.kill_all``."""
    return ProcessSweep(marker).kill_all(timeout)


def kill_listed(entries: Iterable[ProcessIdentity], timeout: float) -> SweepReport:
    """Kill the listed processes and all that carries their markers; blocks as ``ProcessSweep.kill_all`` does.

    A pid is signalled only if boot id, start time and marker are those of the list; any other living process that has
    such a pid now is reported as unrelated.
    """
    this_boot = boot_id()
    markers = {entry.marker for entry in entries if entry.boot_id == this_boot and entry.marker}
    sweep = ProcessSweep(*markers)
    unrelated = []
    for entry in entries:
        stat = read_stat(entry.pid)
        if stat is None or stat.is_dead:
            continue
        if entry.boot_id == this_boot and stat.start_time == entry.start_time and marker_of(stat.pid) == entry.marker:
            sweep.add_descendants(entry.pid)
        else:
            unrelated.append(entry.pid)
    return sweep.kill_all(timeout) + SweepReport(unrelated=tuple(unrelated))
