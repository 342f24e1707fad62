"""What a fault is, and what it gets to see of the pool that it is injected into.

A fault makes its choices beforehand and purely (``schedule``), so that the same seed makes the same ones; what it
finds when the time has come (which pids live) only resolves them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol, runtime_checkable

import msgspec
import trio

from stress.facts import Fact, WorkerProcess
from stress.plan import Plan

__all__ = ["Fault", "Preparation", "Settling", "Stroke", "Target"]


class Stroke(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a fault: ``at`` seconds after the run began, do ``kind``.

    ``pick`` in [0, 1) chooses among the victims there are; ``amount`` is what the kind makes of it (seconds, bytes).
    """

    at: float
    kind: str
    pick: float = 0.0
    amount: float = 0.0


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
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


class Target(Protocol):
    """The pool that is driven, from outside."""

    data_dir: Path
    socket: Path
    ending: trio.Lock
    """Held by whoever ends the supervisor and starts the next one."""

    @property
    def supervisor(self) -> int | None:
        """Its pid; None while there is none."""

    def workers(self) -> list[WorkerProcess]:
        """Its live workers as ``/proc`` has them now, ordered by start."""

    def signal(self, process: WorkerProcess, number: int) -> bool:
        """Send a signal to that very process, never to another one that got its pid; whether it was there."""

    async def kill(self, number: int) -> int:
        """Send the supervisor a signal and wait for its end; its exit code. It is no violation that it ends."""

    async def restart(self) -> None:
        """Start the next supervisor on the same data directory, and wait until it is ready."""

    async def stored(self) -> None:
        """Wait until its store keeps nothing back that a disk has refused; at once where none did, or it has ended."""

    def now(self) -> float:
        """Seconds since the run began."""

    def tell(
        self, fault: str, action: str, *, worker: str = "", pid: int = 0, seconds: float = 0.0, hurts: bool = True
    ) -> None:
        """Write down what has been injected (``stress.facts.Injected``); to be called just before it is done."""

    def see(self, fact: Fact) -> None:
        """Write down what only the fault can see."""


class Fault(Protocol):
    """One kind of fault, by the name under which it is asked for."""

    name: str
    explains: frozenset[str]
    """Codes of errors that requests may end with because of it."""

    def prepare(self, plan: Plan) -> Preparation:
        """What it needs beforehand. Raises UsageError where this machine cannot do it."""

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:
        """All that it is going to do, in order of time; between ``plan.calm`` and ``plan.longest``."""

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """Do it; may last as long as the fault does. Cancelled at the end of the run, when it undoes what it can."""


@runtime_checkable
class Settling(Protocol):
    """A fault of whose strokes it is known only later what came of them."""

    async def settle(self) -> None:
        """Wait until that is known, or it is clear that it is wrong; no stroke begins any more."""
