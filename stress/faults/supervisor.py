"""Faults of the supervisor: shortages (F4), ends (F5), changed clocks and reused pids (F7).

F4: the supervisor runs out of files, processes or disk space for a while, and a worker dies at that moment. No more
files: its RLIMIT_NOFILE becomes what it has open. No more processes: a seam of ``stress.fault_switches``, since root
has no limit of processes. No more disk: its RLIMIT_FSIZE becomes 0, so that every write to a file fails (EFBIG, where a
full disk reports ENOSPC; the store and the logs treat both alike).

F5: the supervisor is killed at any moment, or asked twice to end while it starts workers or drains.

F7: its wall clock is an hour ahead or behind for a while; unrelated processes get the pids of dead workers. Choosing a
pid needs a capability; without it each such fault is recorded as unavailable.
"""

import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import ClassVar

import trio

from stress.facts import ALL_WORKERS, DAMAGED_TRANSCRIPT, ObservedProcess, ReusedPid
from stress.fault_switches import WRAPPER, FaultSwitches
from stress.faults.base import (
    Fault,
    FaultEvent,
    FaultSetup,
    FaultTarget,
    HelperProcess,
    helper_process,
    uninterrupted,
)
from stress.helper_programs import SIGNALLED, TAKE_PID, THERE, unavailable_reason
from stress.sampler import signal_process
from wire.procfs import children_of

_EVERY = 20.0
_END_KINDS = {"kill_supervisor": (0.0, 0.0), "end_twice_in_drain": (0.0, 0.5), "end_twice_in_spawn": (0.0, 0.5)}
"""The amount: seconds between the two signals."""
_SPAWN_SECONDS = 0.5
"""Seconds after its start in which a supervisor with waiting work certainly starts workers."""


class SupervisorKills(Fault):
    """The next supervisor is started as soon as the last one has ended."""

    name = "F5"
    explains = frozenset({"interrupted", "pool_closed", "worker_exited", DAMAGED_TRANSCRIPT, "request_timeout"})
    setup = FaultSetup(ends=True)
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = _END_KINDS
    every = _EVERY

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """End the supervisor and start the next one."""
        async with target.restart_lock, uninterrupted(target):
            await self._end_supervisor(event, target)
            await target.restart()

    async def _end_supervisor(self, event: FaultEvent, target: FaultTarget) -> None:
        """``pick``: for an end in the spawn, the time after the supervisor's start."""
        if event.kind == "end_twice_in_spawn":
            await self._kill(target)
            await target.restart()
            await trio.sleep(event.pick * _SPAWN_SECONDS)
        if event.kind == "kill_supervisor":
            await self._kill(target)
        else:
            target.record_fault(self.name, event.kind, worker=ALL_WORKERS, pid=target.supervisor or 0)
            await _end_twice(event.amount, target)

    async def _kill(self, target: FaultTarget) -> None:
        target.record_fault(self.name, "kill_supervisor", worker=ALL_WORKERS, pid=target.supervisor or 0)
        await target.kill(signal.SIGKILL)


async def _end_twice(seconds: float, target: FaultTarget) -> None:
    """The first signal may have ended it before the second one is due."""
    async with trio.open_nursery() as nursery:

        async def first() -> None:
            await target.kill(signal.SIGTERM)
            nursery.cancel_scope.cancel()

        nursery.start_soon(first)
        await trio.sleep(seconds)
        await target.kill(signal.SIGTERM)
        nursery.cancel_scope.cancel()


_HOUR = 3600.0
_CLOCK_KINDS = {
    "clock_ahead": (2.0, 20.0),
    "clock_behind": (2.0, 20.0),
    "pid": (2.0, 5.0),
    "pids_of_a_life": (4.0, 8.0),
}
"""The amount: seconds until the clock is right again, or for which another process has the pid."""
_MAX_REUSED_PIDS = 4


class ClockAndPidFaults(Fault):
    """``pid``: of a worker that is killed; ``pids_of_a_life``: of the workers of a supervisor that is killed."""

    name = "F7"
    explains = frozenset({"interrupted", "worker_exited", DAMAGED_TRANSCRIPT, "request_timeout"})
    setup = FaultSetup(wrapper=WRAPPER)
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = _CLOCK_KINDS
    every = _EVERY

    def __init__(self) -> None:
        self._clock_lock = trio.Lock()

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """Inject one fault; recorded as unavailable if this machine does not allow it."""
        if event.kind.startswith("clock"):
            await self._shift_clock(event, target)
        elif reason := unavailable_reason():
            target.record_fault(self.name, f"{event.kind}: unavailable, {reason}", hurts=False)
        elif event.kind == "pid":
            await self._reuse_pid(event, target)
        else:
            await self._reuse_all_pids(event, target)

    async def _shift_clock(self, event: FaultEvent, target: FaultTarget) -> None:
        async with self._clock_lock:
            target.record_fault(self.name, event.kind, worker=ALL_WORKERS, seconds=event.amount, hurts=False)
            tampering = FaultSwitches.open(target.data_dir)
            tampering.clock_offset = _HOUR if event.kind == "clock_ahead" else -_HOUR
            try:
                await trio.sleep(event.amount)
            finally:
                tampering.clock_offset = 0.0

    async def _reuse_pid(self, event: FaultEvent, target: FaultTarget) -> None:
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(event.pick * len(victims))]
        async with helper_process([*TAKE_PID, str(victim.pid)]) as stranger:
            target.record_fault(self.name, "kill", worker=victim.name, pid=victim.pid)
            signal_process(victim, signal.SIGKILL)
            if await self._wait_started(stranger, victim, target):
                await trio.sleep(event.amount)
                await _record_outcome(stranger, victim, target)

    async def _reuse_all_pids(self, event: FaultEvent, target: FaultTarget) -> None:
        """The next supervisor reads the list of leftover workers, and finds unrelated processes."""
        async with target.restart_lock, AsyncExitStack() as stack, uninterrupted(target):
            victims = target.workers()[:_MAX_REUSED_PIDS]
            target.record_fault(self.name, "kill_supervisor", worker=ALL_WORKERS, pid=target.supervisor or 0)
            await target.kill(signal.SIGKILL)
            strangers = [
                await stack.enter_async_context(helper_process([*TAKE_PID, str(victim.pid)])) for victim in victims
            ]
            present = [
                (stranger, victim)
                for stranger, victim in zip(strangers, victims, strict=True)
                if await self._wait_started(stranger, victim, target)
            ]
            await target.restart()
            await trio.sleep(event.amount)
            for stranger, victim in present:
                await _record_outcome(stranger, victim, target)

    async def _wait_started(self, stranger: HelperProcess, victim: ObservedProcess, target: FaultTarget) -> bool:
        """Wait until the stranger has the pid; recorded as unavailable if another process was faster."""
        answer = await stranger.read_line()
        if answer != THERE:
            reason = answer or "the stranger ended"
            target.record_fault(self.name, f"pid: unavailable, {reason}", pid=victim.pid, hurts=False)
        return answer == THERE


async def _record_outcome(stranger: HelperProcess, victim: ObservedProcess, target: FaultTarget) -> None:
    """Record whether the stranger was signalled."""
    await stranger.close_stdin()
    target.journal.record(
        ReusedPid(t=target.journal.now(), pid=victim.pid, signalled=await stranger.read_line() == SIGNALLED)
    )


_SECONDS = (0.5, 4.0)
_NO_DISK = "no_disk"
_SHORTAGE_KINDS = ("no_files", "no_processes", _NO_DISK)
_STORE_RETRY = 1.0
_STORED_SECONDS = 30.0
_NOTICE_SECONDS = 2.0
"""Seconds until a write refused at the last moment is in the supervisor's log, its only trace, and read there."""


class ResourceShortages(Fault):
    """A resource is short for ``amount`` seconds; the killed worker cannot be replaced before."""

    name = "F4"
    explains = frozenset({"worker_error", "worker_exited", "worker_start_failed", DAMAGED_TRANSCRIPT})
    setup = FaultSetup(wrapper=WRAPPER, settings={"store": {"retry": _STORE_RETRY}})
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(_SHORTAGE_KINDS, _SECONDS)
    every = _EVERY

    def __init__(self) -> None:
        self._shortage_lock = trio.Lock()

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """Inject one shortage, and kill a worker meanwhile."""
        async with self._shortage_lock, target.restart_lock if event.kind == _NO_DISK else nullcontext():
            supervisor = target.supervisor
            if supervisor is None:
                return
            if event.kind == "no_files" and _highest_descriptor(supervisor) is None:
                why = "the supervisor has ended, or its files are not ours to look at"
                target.record_fault(self.name, f"{event.kind}: unavailable, {why}", hurts=False)
                return
            target.record_fault(self.name, event.kind, worker=ALL_WORKERS, pid=supervisor, seconds=event.amount)
            with _shortage(event.kind, target, supervisor):
                self._kill_one(event.pick, target)
                await trio.sleep(event.amount)
            if event.kind == _NO_DISK:  # until then it must not be ended: it keeps refused writes in memory
                await _wait_stored(target)

    def _kill_one(self, pick: float, target: FaultTarget) -> None:
        victims = target.workers()
        if victims:
            victim = victims[int(pick * len(victims))]
            target.record_fault(self.name, "kill", worker=victim.name, pid=victim.pid)
            signal_process(victim, signal.SIGKILL)


async def _wait_stored(target: FaultTarget) -> None:
    """Record it if the store does not recover when there is disk again."""
    await trio.sleep(_NOTICE_SECONDS)
    with trio.move_on_after(_STORED_SECONDS) as scope:
        await target.wait_stored()
    if scope.cancelled_caught:
        what = f"there was disk again, and {_STORED_SECONDS:g} s later the store had not written its backlog"
        target.journal.record_violation(what)


def _shortage(kind: str, target: FaultTarget, supervisor: int) -> AbstractContextManager[None]:
    match kind:
        case "no_processes":
            return _no_processes(FaultSwitches.open(target.data_dir))
        case "no_files":
            return _limited(supervisor, resource.RLIMIT_NOFILE, (_highest_descriptor(supervisor) or 0) + 1)
        case _:
            return _limited(supervisor, resource.RLIMIT_FSIZE, 0)


@contextmanager
def _no_processes(tampering: FaultSwitches) -> Iterator[None]:
    tampering.no_processes = True
    try:
        yield
    finally:
        tampering.no_processes = False


@contextmanager
def _limited(supervisor: int, limit: int, most: int) -> Iterator[None]:
    """Children that were started meanwhile have inherited the limit; theirs is restored too."""
    usual = _set_limit(supervisor, limit, most)
    try:
        yield
    finally:
        _set_limit(supervisor, limit, usual)  # first: what is started from now on inherits that
        for pid in children_of(supervisor):
            _set_limit(pid, limit, usual)


def _set_limit(pid: int, limit: int, soft: int) -> int:
    """Set the soft limit of a process, if it still exists; returns the previous one, else ``soft``."""
    with suppress(ProcessLookupError):
        usual, hard = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (soft, hard))
        return usual
    return soft


def _highest_descriptor(pid: int) -> int | None:
    """None if the process has ended or may not be inspected."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return max((int(file.name) for file in Path("/proc", str(pid), "fd").iterdir()), default=None)
    return None
