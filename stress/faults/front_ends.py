"""Fault F6: a front end dies between the grant of its worker and the answer; its run must still end."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import trio

from errors import PoolError, UsageError
from stress.connection import ReconnectingClient
from stress.facts import DirectViolation, OrphanedRunEnded
from stress.faults.base import Fault, FaultEvent, FaultTarget, helper_process
from stress.helper_programs import FRONT_END, GRANTED

_TURN_MS = 500
"""Duration of the run; the front end dies within it, counted from the grant."""
_GRANT_SECONDS = 60.0
_OUTCOME_SECONDS = 90.0
_PAUSE = 0.1


class FrontEndKills(Fault):
    """Each front end is a process with a session of its own, independent of the load."""

    name = "F6"
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = {"kill_front_end": (0.0, _TURN_MS / 1000)}
    """The amount: seconds from the grant to the death."""
    every = 5.0

    def __init__(self) -> None:
        self._name = f"lost-front-end-{os.urandom(4).hex()}"  # an attached supervisor knows earlier runs
        self._numbers = itertools.count(1)
        self._open: set[str] = set()
        self._changed = trio.Event()

    async def inject(self, stroke: FaultEvent, target: FaultTarget) -> None:
        """Record the fault as unavailable if the supervisor ends before the grant, or is too busy for one."""
        run = f"{self._name}-{next(self._numbers)}"
        self._open.add(run)
        try:
            await self._kill_front_end(run, stroke, target)
        finally:
            self._open.remove(run)
            self._changed.set()
            self._changed = trio.Event()

    async def settle(self) -> None:
        """Wait until the run of each killed front end has ended."""
        while self._open:
            await self._changed.wait()

    async def _kill_front_end(self, run: str, stroke: FaultEvent, target: FaultTarget) -> None:
        async with helper_process([*FRONT_END, str(target.socket), run, run, f"DELAY={_TURN_MS} {run}"]) as front_end:
            said = f"nothing in {_GRANT_SECONDS:g} s"
            with trio.move_on_after(_GRANT_SECONDS):
                said = await front_end.read_line() or "nothing, and ended"
            if said != GRANTED:
                why = f"its front end said {said}"
                target.record_fault(self.name, f"{stroke.kind}: unavailable, {why}", hurts=False)
                return
            await trio.sleep(stroke.amount)
            target.record_fault(self.name, stroke.kind, pid=front_end.pid, hurts=False)
        await expect_outcome(run, target)


async def expect_outcome(run: str, target: FaultTarget) -> None:
    """Record whether a run ends; its outcome is not checked, as other faults may have affected it."""

    async def ready() -> Path:
        return target.socket

    connection = ReconnectingClient(ready)
    wrong = f"the front end of run {run} died, and the run has no outcome {_OUTCOME_SECONDS:g} s later"
    with trio.move_on_after(_OUTCOME_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            wrong = await _query_outcome(connection, run)
            nursery.cancel_scope.cancel()
    now = target.now()
    target.record(DirectViolation(t=now, what=wrong) if wrong else OrphanedRunEnded(t=now, run=run))


async def _query_outcome(connection: ReconnectingClient, run: str) -> str:
    """The problem with the answer; empty = none."""
    while True:
        try:
            answer = await connection.request("agent.wait", {"run_id": run, "session": run})
        except PoolError as exc:
            if exc.details.get("code") == UsageError.code:
                return f"the front end of run {run} died, and the run is unknown: {exc}"
            await trio.sleep(_PAUSE)  # the supervisor is just ending; the next one has to know
            continue
        if answer["status"] != "timeout":  # it was asked for with a patience of its own
            return ""
