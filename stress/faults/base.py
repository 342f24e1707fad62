"""The interface of a fault, its view of the pool, and what faults share: times, helper processes, uninterrupted ends.

A fault chooses beforehand and purely (``schedule``), so that one seed gives one choice. The state at injection (which
pids live) only resolves that choice.
"""

import math
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import trio

from stress.facts import FaultInjected, Journal, ObservedProcess
from stress.plan import Plan
from stress.sampler import ProcessTree


class FaultEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a fault: ``at`` seconds after the run began, do ``kind``.

    ``pick`` in [0, 1) chooses among the victims; the meaning of ``amount`` depends on the kind (seconds, bytes).
    """

    at: float
    kind: str
    pick: float = 0.0
    amount: float = 0.0


class FaultSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Prerequisites of a fault, before the supervisor starts.

    ``settings``: tables merged into the settings file. ``wrapper``: a program with its arguments that starts the
    supervisor. ``profiles``: ``(agent, role)`` of faulty workers; they get the share ``share`` of all requests.
    ``prompts``: prefixes of those requests, in turn. ``ends``: the fault ends the supervisor, which must be our own.
    """

    settings: Mapping[str, Any] = {}
    wrapper: tuple[str, ...] = ()
    profiles: tuple[tuple[str, str], ...] = ()
    share: float = 0.0
    prompts: tuple[str, ...] = ("",)
    ends: bool = False


class FaultTarget(ABC):
    """The pool under test."""

    def __init__(self, socket: Path, data_dir: Path, journal: Journal) -> None:
        self.socket = socket
        self.data_dir = data_dir
        self.restart_lock = trio.Lock()
        """Held by a fault while it replaces the supervisor."""
        self.journal = journal

    @property
    @abstractmethod
    def process_tree(self) -> ProcessTree | None:
        """The processes of its supervisor; None while there is none or it is unknown."""

    @property
    def supervisor(self) -> int | None:
        """Its pid; None while there is none."""
        return None if self.process_tree is None else self.process_tree.supervisor

    def workers(self) -> list[ObservedProcess]:
        """Its live workers in ``/proc`` now, ordered by start."""
        return [] if self.process_tree is None else list(self.process_tree.scan().workers)

    @abstractmethod
    async def kill(self, number: int) -> int:
        """Send the supervisor a signal and wait for its end, which is no violation; its exit code."""

    @abstractmethod
    async def restart(self) -> None:
        """Start the next supervisor on the same data directory, and wait until it is ready."""

    @abstractmethod
    async def wait_stored(self) -> None:
        """Wait until its store has written all that a full disk refused; returns at once if it has ended."""

    def record_fault(
        self, fault: str, action: str, *, worker: str = "", pid: int = 0, seconds: float = 0.0, hurts: bool = True
    ) -> None:
        """Record an injection; to be called just before it."""
        now = self.journal.now()
        self.journal.record(
            FaultInjected(t=now, fault=fault, action=action, worker=worker, pid=pid, seconds=seconds, hurts=hurts)
        )


class Fault:
    """One kind of fault; ``name`` selects it on the command line.

    ``explains``: error codes that requests may end with because of it. ``setup``: its prerequisites. ``kinds``: its
    actions with the range of their amount, one every ``every`` seconds on average.
    """

    name: ClassVar[str]
    explains: ClassVar[frozenset[str]] = frozenset()
    setup: ClassVar[FaultSetup] = FaultSetup()
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    every: ClassVar[float] = math.inf

    def prepare(self, plan: Plan) -> FaultSetup:  # noqa: ARG002 - the settings of some follow from the plan
        """Its prerequisites. Raises UsageError if this machine cannot do it."""
        return self.setup

    def schedule(self, plan: Plan, rng: Random) -> Sequence[FaultEvent]:
        """Its events in order of time, between ``plan.calm`` and ``plan.longest``, each kind equally often.

        Empty if prompts cause the fault.
        """
        if not self.kinds:
            return ()
        room = max(0.0, plan.longest - plan.calm)
        count = max(len(self.kinds), round(room / self.every))
        times = sorted(plan.calm + room * rng.random() for _ in range(count))
        names = [
            name for _ in range(count // len(self.kinds) + 1) for name in rng.sample(list(self.kinds), len(self.kinds))
        ]
        return [
            FaultEvent(at=at, kind=name, pick=rng.random(), amount=rng.uniform(*self.kinds[name]))
            for at, name in zip(times, names, strict=False)
        ]

    async def inject(self, event: FaultEvent, target: FaultTarget) -> None:
        """Inject the fault; may last as long as the fault does. The end of the run cancels and undoes it."""

    async def settle(self) -> None:
        """Wait until the consequences of its events are known; no event begins any more."""


_READ_BYTES = 4096
_MAX_SECONDS = 180.0


class HelperProcess:
    """A running helper program."""

    def __init__(self, process: trio.Process, stdin: trio.abc.SendStream, output: trio.abc.ReceiveStream) -> None:
        self.pid = process.pid
        self._stdin = stdin
        self._output = output
        self._rest = b""

    async def close_stdin(self) -> None:
        """End its stdin, which tells it to finish."""
        await self._stdin.aclose()

    async def read_line(self) -> str:
        """The next line that it prints; empty = the end."""
        while b"\n" not in self._rest:
            piece = await self._output.receive_some(_READ_BYTES)
            if not piece:
                return ""
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")


@asynccontextmanager
async def helper_process(command: Iterable[str]) -> AsyncIterator[HelperProcess]:
    """Run a program that is killed at the end of the block."""
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a helper's streams are no pipes")
    async with process.stdin, process.stdout:
        try:
            yield HelperProcess(process, process.stdin, process.stdout)
        finally:  # before its stdin ends, which would mean that this process was killed
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


@asynccontextmanager
async def uninterrupted(target: FaultTarget, seconds: float = _MAX_SECONDS) -> AsyncGenerator[None, None]:
    """Shield the replacement of a supervisor: interrupted, it would leave none to ask.

    After ``seconds`` a violation is recorded, and the supervisor is killed and replaced.
    """
    with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds) as scope:
        yield
    if scope.cancelled_caught:
        what = f"a supervisor was to be replaced, and was not {seconds:g} s later"
        target.journal.record_violation(what)
        with trio.move_on_after(seconds, shield=True) as last:
            await target.kill(signal.SIGKILL)
            await target.restart()
        if last.cancelled_caught:
            target.journal.record_violation("the supervisor was killed, and the next one did not start")
