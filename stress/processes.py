"""The supervisor's processes as ``/proc`` has them: workers by the mark in their environment, zombies, sizes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stress.facts import WorkerProcess

__all__ = [
    "Household",
    "Look",
    "Stat",
    "find_supervisor",
    "marked_processes",
    "open_files",
    "read_stat",
    "resident_bytes",
    "seconds_in_queue",
    "signal_process",
]

_PROC = Path("/proc")
_MARKER = b"POOL_WORKER_ID="
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ZOMBIE = "Z"
_DYING = frozenset("ZX")
_SUPERVISOR_WORDS = {b"-m", b"cli", b"run"}


class Stat(NamedTuple):
    """Of ``/proc/PID/stat``: state letter, parent, session, start in clock ticks since boot."""

    state: str
    parent: int
    session: int
    started: int


class Look(NamedTuple):
    """A supervisor's children at one moment: live workers in order of start, and those nobody has waited for."""

    workers: tuple[WorkerProcess, ...]
    zombies: tuple[int, ...]


def read_stat(pid: int) -> Stat | None:
    """None = there is no such process."""
    try:
        content = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = content[content.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def resident_bytes(pid: int) -> int:
    """Its resident size; 0 = there is no such process."""
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def open_files(pid: int) -> int | None:
    """How many files it has open; None = there is no such process, or it is not ours to look at."""
    try:
        return sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None


def seconds_in_queue(pid: int) -> float:
    """How long its main thread has been ready to run and had no CPU, since it began; 0 = not known."""
    try:
        return int((_PROC / str(pid) / "task" / str(pid) / "schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def marker_of(pid: int) -> str:
    """What the supervisor has marked a worker with, ``INSTANCE:WORKER``; what a worker starts inherits it."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    found = [value for value in environment.split(b"\0") if value.startswith(_MARKER)]
    return found[0].removeprefix(_MARKER).decode(errors="replace") if found else ""


def marked_processes(instance: str) -> list[int]:
    """Every live process that carries the marker of that supervisor, whoever its parent is."""
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if marker_of(pid).startswith(f"{instance}:") and _is_alive(pid)]


def signal_process(process: WorkerProcess, number: int) -> bool:
    """Send a signal to that very process, never to one that has its pid now; whether it was there."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        stat = read_stat(process.pid)
        if stat is None or stat.started != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def children_of(pid: int) -> Iterator[int]:
    """Its children; none = it has none, or is gone."""
    tasks = _PROC / str(pid) / "task"
    try:
        threads = list(tasks.iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_bytes()
        except OSError:
            continue
        yield from map(int, children.split())


def find_supervisor(started: int) -> int:
    """The supervisor among what was started: the process itself, or that which a wrapper has started in its turn."""
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


class Household:
    """One supervisor's children. What kind of child each is, is looked up once.

    ``instance``: what its workers are marked with; empty = nobody knows until the first one is seen.
    """

    def __init__(self, supervisor: int, instance: str = "") -> None:
        self.supervisor = supervisor
        self.instance = instance
        self._names: dict[tuple[int, int], str] = {}
        self._others: set[tuple[int, int]] = set()

    def look(self) -> Look:
        """Its children now."""
        found, zombies = [], []
        for pid in children_of(self.supervisor):
            stat = read_stat(pid)
            if stat is None:
                continue
            if stat.state in _DYING:
                zombies += [pid] if stat.state == _ZOMBIE else []
            elif name := self._name(pid, stat):
                found.append(WorkerProcess(pid, stat.started, name))
        return Look(tuple(sorted(found, key=lambda each: (each.started, each.pid))), tuple(zombies))

    def left(self) -> list[int]:
        """What is left of it after its end: marked processes, and children that were no workers."""
        others = [pid for pid, started in self._others if _is_alive(pid, started)]
        return sorted({*others, *(marked_processes(self.instance) if self.instance else [])})

    def _name(self, pid: int, stat: Stat) -> str:
        """The worker's name; empty = it is none, or has not become one yet: between fork and exec nobody can tell.

        What a worker has left behind carries its mark too, but only workers lead the session that they are in.
        """
        key = (pid, stat.started)
        name = self._names.get(key)
        if name is None:
            instance, _, name = marker_of(pid).partition(":")
            if not name or stat.session != pid:
                self._others.add(key)
                return ""
            self.instance = instance
            self._names[key] = name
            self._others.discard(key)
        return name


def _is_alive(pid: int, started: int | None = None) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state not in _DYING and started in (None, stat.started)
