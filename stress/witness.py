"""Looks at the supervisor from outside while the load goes on: its processes, its status, how late the machine is."""

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from stress.connection import Connection
from stress.facts import Delayed, Disordered, Fact, Figures, Processes, Waiting, WorkerFigures
from stress.processes import Household, Look, open_files, resident_bytes, seconds_in_queue

__all__ = ["ANSWER_SECONDS", "Witness", "read_status"]

_LOOK_SECONDS = 0.05
_MEASURE_SECONDS = 1.0
_NAP_SECONDS = 0.02
_STATUS_SECONDS = 1.0
ANSWER_SECONDS = 60.0
"""A supervisor that has not answered one question by then does not answer at all."""
_STATUS_SHARE = 0.02
"""The supervisor is not to spend more of its time on our questions than this."""


class _Pool(msgspec.Struct):
    max: int
    mode: str


class _Counters(msgspec.Struct):
    grants: dict[str, int]
    releases: int
    lost: int
    active: int


class _Status(msgspec.Struct):
    pool: _Pool
    counters: _Counters
    workers: tuple[WorkerFigures, ...]
    waiting: tuple[Waiting, ...]


def read_status(document: Any, *, t: float, life: int, before: tuple[int, ...], after: tuple[int, ...]) -> Figures:
    """Of a status document what is judged. Pure."""
    status = msgspec.convert(document, _Status)
    return Figures(
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


class Witness:
    """``tell`` is told what is seen; ``household`` and ``life`` say whose processes are looked at now."""

    def __init__(
        self,
        connection: Connection,
        *,
        household: Callable[[], Household | None],
        life: Callable[[], int],
        clock: Callable[[], float],
        tell: Callable[[Fact], None],
    ) -> None:
        self._connection = connection
        self._household = household
        self._life = life
        self._clock = clock
        self._tell = tell
        self._last: Look | None = None
        self._measured = -_MEASURE_SECONDS

    async def watch_processes(self) -> None:
        """Twenty times a second; told when something has changed, and once a second with the supervisor's size."""
        while True:
            self.look()
            await trio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Once."""
        household = self._household()
        if household is None:
            self._last = None
            return
        look, now = household.look(), self._clock()
        measures = now - self._measured >= _MEASURE_SECONDS
        if look == self._last and not measures:
            return
        self._last = look
        pid = household.supervisor
        size = {"rss": resident_bytes(pid), "fds": open_files(pid)} if measures else {}
        self._measured = now if measures else self._measured
        self._tell(
            Processes(t=now, life=self._life(), supervisor=pid, workers=look.workers, zombies=look.zombies, **size)
        )

    async def watch_status(self) -> None:
        """Once a second, or as often as the supervisor can bear."""
        while True:
            asked = self._clock()
            life, before = self._life(), self._pids()
            document = None
            with trio.move_on_after(ANSWER_SECONDS):
                document = await self._connection.ask("status")
            if document is None:
                what = f"the supervisor did not answer status in {ANSWER_SECONDS:g} s"
                self._tell(Disordered(t=self._clock(), what=what))
            elif self._life() == life:
                self._tell(read_status(document, t=self._clock(), life=life, before=before, after=self._pids()))
            took = self._clock() - asked
            await trio.sleep(max(_STATUS_SECONDS, took / _STATUS_SHARE))

    async def watch_delays(self) -> None:
        """Each second and at the end, by how much this machine makes things late.

        How much later than asked for this process goes on after a nap, at most; or how long the supervisor was ready to
        run and had no CPU, where that is more.
        """
        told, queued = self._clock(), self._queued()
        while True:
            worst, before = 0.0, queued
            try:
                while self._clock() - told < _MEASURE_SECONDS:
                    began = self._clock()
                    await trio.sleep(_NAP_SECONDS)
                    worst = max(worst, self._clock() - began - _NAP_SECONDS)
            finally:
                told, queued = self._clock(), self._queued()
                self._tell(Delayed(t=told, seconds=max(worst, queued - before)))

    def _queued(self) -> float:
        household = self._household()
        return 0.0 if household is None else seconds_in_queue(household.supervisor)

    def _pids(self) -> tuple[int, ...]:
        household = self._household()
        return () if household is None else tuple(worker.pid for worker in household.look().workers)
