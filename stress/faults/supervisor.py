"""F4 F5 F7.

F5: the supervisor is killed at any moment, or told twice to end while it starts workers or while it drains.

F7: the supervisor's wall clock is an hour ahead or behind for a while; strangers get the pids of dead workers.

A stranger takes exactly the pid that it wants, in the pid namespace that everybody is in: what a small namespace in
which pids come round soon would do by chance happens at each stroke. It needs a capability; where that is missing,
each such stroke says so and does nothing.

F4: the supervisor runs out of files, processes or disk space for a while, and a worker dies at that moment.

No more files: its RLIMIT_NOFILE becomes what it has open. No more processes: a seam of ``stress.fault_injection``,
since root knows no limit of processes. No more disk: its RLIMIT_FSIZE becomes 0, so that every write to any file fails
(EFBIG, where a full disk says ENOSPC; the store and the logs make no difference between them).
"""

import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from random import Random

import trio

from stress.facts import DAMAGED, EVERYBODY, Disordered, Stranger, WorkerProcess
from stress.fault_injection import WRAPPER, Tampering
from stress.faults.base import Helper, Preparation, Stroke, Target, gone_through_with, helper_process, spread
from stress.pid_reuse import COMMAND, SIGNALLED, THERE, why_not
from stress.plan import Plan
from stress.sampler import children_of

_EVERY = 20.0
_END_KINDS = {"kill_supervisor": (0.0, 0.0), "end_twice_in_drain": (0.0, 0.5), "end_twice_in_spawn": (0.0, 0.5)}
"""The amount: seconds between the two signals."""
_SPAWN_SECONDS = 0.5
"""For so long after its start, with work waiting for it, a supervisor certainly starts workers."""


class EndedSupervisors:
    """The next supervisor is started as soon as the last one has ended."""

    name = "F5"
    explains = frozenset({"interrupted", "pool_closed", "worker_exited", DAMAGED, "request_timeout"})

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """Nothing, but that the supervisor must be ours."""
        return Preparation(ends=True)

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """Each way to end as often as the others."""
        return spread(plan, rng, _END_KINDS, every=_EVERY)

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """One end, and the next life: once begun it is gone through with, or nobody would be left to ask."""
        async with target.ending, gone_through_with(target):
            await self._end(stroke, target)
            await target.restart()

    async def _end(self, stroke: Stroke, target: Target) -> None:
        """In the spawn: ``pick`` says how soon after the supervisor's start."""
        if stroke.kind == "end_twice_in_spawn":
            await self._kill(target)
            await target.restart()
            await trio.sleep(stroke.pick * _SPAWN_SECONDS)
        if stroke.kind == "kill_supervisor":
            await self._kill(target)
        else:
            target.tell(self.name, stroke.kind, worker=EVERYBODY, pid=target.supervisor or 0)
            await _end_twice(stroke.amount, target)

    async def _kill(self, target: Target) -> None:
        target.tell(self.name, "kill_supervisor", worker=EVERYBODY, pid=target.supervisor or 0)
        await target.kill(signal.SIGKILL)


async def _end_twice(seconds: float, target: Target) -> None:
    """The first signal may well have ended it before the second one is due."""
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
"""The amount: seconds until the clock is right again, or for which a stranger has the pid."""
_MOST_STRANGERS = 4


class ClockAndPids:
    """``pid``: of a worker that is killed; ``pids_of_a_life``: of the workers of a supervisor that is killed."""

    name = "F7"
    explains = frozenset({"interrupted", "worker_exited", DAMAGED, "request_timeout"})

    def __init__(self) -> None:
        self._one_clock = trio.Lock()

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """A supervisor whose wall clock can be set."""
        return Preparation(wrapper=WRAPPER)

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """Each of them as often as the others."""
        return spread(plan, rng, _CLOCK_KINDS, every=_EVERY)

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """One of them; says so where this machine does not allow it."""
        if stroke.kind.startswith("clock"):
            await self._move_clock(stroke, target)
        elif reason := why_not():
            target.tell(self.name, f"{stroke.kind}: unavailable, {reason}", hurts=False)
        elif stroke.kind == "pid":
            await self._take_pid(stroke, target)
        else:
            await self._take_pids_of_a_life(stroke, target)

    async def _move_clock(self, stroke: Stroke, target: Target) -> None:
        async with self._one_clock:
            target.tell(self.name, stroke.kind, worker=EVERYBODY, seconds=stroke.amount, hurts=False)
            tampering = Tampering.of(target.data_dir)
            tampering.clock_offset = _HOUR if stroke.kind == "clock_ahead" else -_HOUR
            try:
                await trio.sleep(stroke.amount)
            finally:
                tampering.clock_offset = 0.0

    async def _take_pid(self, stroke: Stroke, target: Target) -> None:
        victims = target.workers()
        if not victims:
            return
        victim = victims[int(stroke.pick * len(victims))]
        async with helper_process(_stranger(victim)) as stranger:
            target.tell(self.name, "kill", worker=victim.name, pid=victim.pid)
            target.signal(victim, signal.SIGKILL)
            if await self._is_there(stranger, victim, target):
                await trio.sleep(stroke.amount)
                await _part(stranger, victim, target)

    async def _take_pids_of_a_life(self, stroke: Stroke, target: Target) -> None:
        """The next supervisor reads whom the last one has left behind, and finds strangers."""
        async with target.ending, AsyncExitStack() as stack, gone_through_with(target):
            victims = target.workers()[:_MOST_STRANGERS]
            target.tell(self.name, "kill_supervisor", worker=EVERYBODY, pid=target.supervisor or 0)
            await target.kill(signal.SIGKILL)
            strangers = [await stack.enter_async_context(helper_process(_stranger(victim))) for victim in victims]
            present = [
                (stranger, victim)
                for stranger, victim in zip(strangers, victims, strict=True)
                if await self._is_there(stranger, victim, target)
            ]
            await target.restart()
            await trio.sleep(stroke.amount)
            for stranger, victim in present:
                await _part(stranger, victim, target)

    async def _is_there(self, stranger: Helper, victim: WorkerProcess, target: Target) -> bool:
        """As soon as the pid is free; says so where somebody else was faster."""
        answer = await stranger.line()
        if answer != THERE:
            reason = answer or "the stranger ended"
            target.tell(self.name, f"pid: unavailable, {reason}", pid=victim.pid, hurts=False)
        return answer == THERE


def _stranger(victim: WorkerProcess) -> list[str]:
    return [*COMMAND, str(victim.pid)]


async def _part(stranger: Helper, victim: WorkerProcess, target: Target) -> None:
    """Tell what became of it."""
    await stranger.dismiss()
    target.see(Stranger(t=target.now(), pid=victim.pid, signalled=await stranger.line() == SIGNALLED))


_SECONDS = (0.5, 4.0)
_NO_DISK = "no_disk"
_SHORTAGE_KINDS = ("no_files", "no_processes", _NO_DISK)
_STORE_RETRY = 1.0
_STORED_SECONDS = 30.0
_HEARD_SECONDS = 2.0
"""What was refused at the last moment is in the supervisor's log, and read there, by then: nothing else tells of it."""


class Shortages:
    """What is short is short for ``amount`` seconds; the killed worker cannot be replaced before."""

    name = "F4"
    explains = frozenset({"worker_error", "worker_exited", "worker_start_failed", DAMAGED})

    def __init__(self) -> None:
        self._one_at_a_time = trio.Lock()

    def prepare(self, plan: Plan) -> Preparation:  # noqa: ARG002 - the port's signature
        """A supervisor that can be told that there are no more processes, and soon sees that there is disk again."""
        return Preparation(wrapper=WRAPPER, settings={"store": {"retry": _STORE_RETRY}})

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """Each shortage as often as the others."""
        return spread(plan, rng, dict.fromkeys(_SHORTAGE_KINDS, _SECONDS), every=_EVERY)

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """One shortage, and one worker less."""
        async with self._one_at_a_time, target.ending if stroke.kind == _NO_DISK else nullcontext():
            supervisor = target.supervisor
            if supervisor is None:
                return
            if stroke.kind == "no_files" and _highest_descriptor(supervisor) is None:
                why = "the supervisor has ended, or its files are not ours to look at"
                target.tell(self.name, f"{stroke.kind}: unavailable, {why}", hurts=False)
                return
            target.tell(self.name, stroke.kind, worker=EVERYBODY, pid=supervisor, seconds=stroke.amount)
            with _shortage(stroke.kind, target, supervisor):
                self._kill_one(stroke.pick, target)
                await trio.sleep(stroke.amount)
            if stroke.kind == _NO_DISK:  # till then nobody may end it: it keeps in memory what the disk has not taken
                await _until_stored(target)

    def _kill_one(self, pick: float, target: Target) -> None:
        victims = target.workers()
        if victims:
            victim = victims[int(pick * len(victims))]
            target.tell(self.name, "kill", worker=victim.name, pid=victim.pid)
            target.signal(victim, signal.SIGKILL)


async def _until_stored(target: Target) -> None:
    """Say where it is not, although there is disk again."""
    await trio.sleep(_HEARD_SECONDS)
    with trio.move_on_after(_STORED_SECONDS) as scope:
        await target.stored()
    if scope.cancelled_caught:
        what = f"there was disk again, and {_STORED_SECONDS:g} s later the store had not written what it had kept back"
        target.see(Disordered(t=target.now(), what=what))


def _shortage(kind: str, target: Target, supervisor: int) -> AbstractContextManager[None]:
    match kind:
        case "no_processes":
            return _no_processes(Tampering.of(target.data_dir))
        case "no_files":
            return _limited(supervisor, resource.RLIMIT_NOFILE, (_highest_descriptor(supervisor) or 0) + 1)
        case _:
            return _limited(supervisor, resource.RLIMIT_FSIZE, 0)


@contextmanager
def _no_processes(tampering: Tampering) -> Iterator[None]:
    tampering.no_processes = True
    try:
        yield
    finally:
        tampering.no_processes = False


@contextmanager
def _limited(supervisor: int, limit: int, most: int) -> Iterator[None]:
    """Its children that were started meanwhile have inherited it, and get back what they are due."""
    usual = _limit(supervisor, limit, most)
    try:
        yield
    finally:
        _limit(supervisor, limit, usual)  # first: whoever is started from now on inherits that
        for pid in children_of(supervisor):
            _limit(pid, limit, usual)


def _limit(pid: int, limit: int, soft: int) -> int:
    """Set the soft limit of a process, if it is still there; what it was, else the same."""
    with suppress(ProcessLookupError):
        usual, hard = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (soft, hard))
        return usual
    return soft


def _highest_descriptor(pid: int) -> int | None:
    """None = it is gone, or has just ended and nobody has waited for it yet, or may not be looked at."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return max((int(file.name) for file in Path("/proc", str(pid), "fd").iterdir()), default=None)
    return None
