"""What a fault is, what it sees of the pool, and what faults share: their times, helper processes, uninterrupted ends.

A fault chooses beforehand and purely (``schedule``), so that one seed gives one choice. What it finds when its time has
come (which pids live) only resolves that choice.
"""

import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol, runtime_checkable

import msgspec
import trio

from stress.facts import DirectViolation, Fact, ObservedProcess
from stress.plan import Plan


class FaultEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a fault: ``at`` seconds after the run began, do ``kind``.

    ``pick`` in [0, 1) chooses among the victims there are; ``amount`` is what the kind makes of it (seconds, bytes).
    """

    at: float
    kind: str
    pick: float = 0.0
    amount: float = 0.0


class FaultSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be so before the supervisor starts.

    ``settings``: tables merged into its settings file. ``wrapper``: a program that starts it, with its arguments.
    ``profiles``: ``(agent, role)`` of further profiles, whose workers misbehave; their sessions are asked ``share`` of
    all requests. ``prompts``: what their prompts say before the nonce, one of them each time. ``ends``: the fault ends
    the supervisor, which therefore has to be one of our own.
    """

    settings: Mapping[str, Any] = {}
    wrapper: tuple[str, ...] = ()
    profiles: tuple[tuple[str, str], ...] = ()
    share: float = 0.0
    prompts: tuple[str, ...] = ("",)
    ends: bool = False


class FaultTarget(Protocol):
    """The pool that is driven, from outside."""

    data_dir: Path
    socket: Path
    restart_lock: trio.Lock
    """Held by the fault that ends the supervisor and starts the next one."""

    @property
    def supervisor(self) -> int | None:
        """Its pid; None while there is none."""

    def workers(self) -> list[ObservedProcess]:
        """Its live workers as ``/proc`` has them now, ordered by start."""

    def signal(self, process: ObservedProcess, number: int) -> bool:
        """Send a signal to that very process, never to another one that got its pid; whether it was there."""

    async def kill(self, number: int) -> int:
        """Send the supervisor a signal and wait for its end; its exit code. It is no violation that it ends."""

    async def restart(self) -> None:
        """Start the next supervisor on the same data directory, and wait until it is ready."""

    async def wait_stored(self) -> None:
        """Wait until its store keeps nothing back that a disk has refused; at once where none did, or it has ended."""

    def now(self) -> float:
        """Seconds since the run began."""

    def record_fault(
        self, fault: str, action: str, *, worker: str = "", pid: int = 0, seconds: float = 0.0, hurts: bool = True
    ) -> None:
        """Write down what has been injected (``stress.facts.Injected``); to be called just before it is done."""

    def record(self, fact: Fact) -> None:
        """Write down what only the fault can see."""


class Fault(Protocol):
    """One kind of fault, by the name under which it is asked for."""

    name: str
    explains: frozenset[str]
    """Codes of errors that requests may end with because of it."""

    def prepare(self, plan: Plan) -> FaultSetup:
        """What it needs beforehand. Raises UsageError where this machine cannot do it."""

    def schedule(self, plan: Plan, rng: Random) -> Sequence[FaultEvent]:
        """All that it is going to do, in order of time; between ``plan.calm`` and ``plan.longest``."""

    async def inject(self, stroke: FaultEvent, target: FaultTarget) -> None:
        """Do it; may last as long as the fault does. Cancelled at the end of the run, when it undoes what it can."""


@runtime_checkable
class SettlingFault(Protocol):
    """A fault of whose strokes it is known only later what came of them."""

    async def settle(self) -> None:
        """Wait until that is known, or it is clear that it is wrong; no stroke begins any more."""


_READ_BYTES = 4096
_MAX_SECONDS = 180.0


class HelperProcess:
    """A running one."""

    def __init__(self, process: trio.Process, stdin: trio.abc.SendStream, output: trio.abc.ReceiveStream) -> None:
        self.pid = process.pid
        self._stdin = stdin
        self._output = output
        self._rest = b""

    async def close_stdin(self) -> None:
        """Tell it by the end of its stdin that it is not needed any more."""
        await self._stdin.aclose()

    async def read_line(self) -> str:
        """The next line that it prints; empty = there is none any more."""
        while b"\n" not in self._rest:
            piece = await self._output.receive_some(_READ_BYTES)
            if not piece:
                return ""
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")


@asynccontextmanager
async def helper_process(command: Iterable[str]) -> AsyncIterator[HelperProcess]:
    """It is killed at the end of the block."""
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a helper's streams are no pipes")
    async with process.stdin, process.stdout:
        try:
            yield HelperProcess(process, process.stdin, process.stdout)
        finally:  # before its stdin ends: that would tell it that we were killed
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


@asynccontextmanager
async def uninterrupted(target: FaultTarget, seconds: float = _MAX_SECONDS) -> AsyncGenerator[None, None]:
    """For the end of a supervisor and the beginning of the next: once begun, or no supervisor would be left to ask.

    What is not done in that time is told of, and the supervisor killed.
    """
    with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds) as scope:
        yield
    if scope.cancelled_caught:
        what = f"a supervisor was ended, and {seconds:g} s later that and what had to follow was not done"
        target.record(DirectViolation(t=target.now(), what=what))
        with trio.move_on_after(seconds, shield=True) as last:
            await target.kill(signal.SIGKILL)
            await target.restart()
        if last.cancelled_caught:
            target.record(
                DirectViolation(t=target.now(), what="the supervisor was killed, and the next one did not begin")
            )


def spread_events(
    plan: Plan, rng: Random, kinds: Mapping[str, tuple[float, float]], *, every: float
) -> Sequence[FaultEvent]:
    """Strokes between the calm and the end, one each ``every`` seconds on average, and each kind at least once.

    ``kinds``: between which two values the amount of each lies.
    """
    room = max(0.0, plan.longest - plan.calm)
    count = max(len(kinds), round(room / every))
    times = sorted(plan.calm + room * rng.random() for _ in range(count))
    names = [name for _ in range(count // len(kinds) + 1) for name in rng.sample(list(kinds), len(kinds))]
    return [
        FaultEvent(at=at, kind=name, pick=rng.random(), amount=rng.uniform(*kinds[name]))
        for at, name in zip(times, names, strict=False)
    ]
