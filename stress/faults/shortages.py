"""F4: the supervisor runs out of files, processes or disk space for a while, and a worker dies at that moment.

No more files: its RLIMIT_NOFILE becomes what it has open. No more processes: a seam of ``stress.tampered_supervisor``,
since root knows no limit of processes. No more disk: its RLIMIT_FSIZE becomes 0, so that every write to any file fails
(EFBIG, where a full disk says ENOSPC; the store and the logs make no difference between them).
"""

import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from random import Random

import trio

from stress.facts import DAMAGED, EVERYBODY, Disordered
from stress.faults.port import Preparation, Stroke, Target
from stress.faults.times import spread
from stress.plan import Plan
from stress.processes import children_of
from stress.tampered_supervisor import WRAPPER
from stress.tampering import Tampering

__all__ = ["Shortages"]

_EVERY = 20.0
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
