"""A supervisor that another program runs: it is driven and observed, but neither started nor ended."""

import functools
from pathlib import Path
from typing import Any

import msgspec
import trio

from doors.control.client_socket import connect
from errors import RequestTimeout, UsageError
from stress.connection import ReconnectingClient
from stress.facts import Journal, SupervisorStarted
from stress.faults.base import FaultTarget
from stress.sampler import ProcessTree

_ANSWER_SECONDS = 10.0
"""As long as ``pool status`` waits."""


class PoolLimits(msgspec.Struct, frozen=True):
    """The pool settings that the checks need."""

    max: int
    spawn_burst: int
    spawn_rate: float
    backoff_max: float
    age_step: float


class _AttachedPool(msgspec.Struct):
    limits: PoolLimits


class _AttachedSupervisor(msgspec.Struct):
    pid: int
    data_dir: str


class _AttachedStatus(msgspec.Struct):
    pool: _AttachedPool
    supervisor: _AttachedSupervisor


async def fetch_limits(socket: Path) -> PoolLimits:
    """The limits of the supervisor on ``socket``. Raises NoSupervisor; RequestTimeout where it does not answer."""
    asking = ReconnectingClient(functools.partial(check_listening, socket))
    with trio.move_on_after(_ANSWER_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking.run)
            limits = msgspec.convert(await asking.request("status"), _AttachedStatus).pool.limits
            nursery.cancel_scope.cancel()
            return limits
    raise RequestTimeout(f"the supervisor on {socket} did not answer status in time; is it stopped or overloaded?")


async def check_listening(socket: Path) -> Path:
    """The socket. Raises NoSupervisor where none listens on it."""
    (await trio.to_thread.run_sync(connect, socket)).close()
    return socket


class AttachedTarget(FaultTarget):
    """Refuses whatever would end the supervisor."""

    def __init__(self, socket: Path, journal: Journal) -> None:
        super().__init__(socket, Path(), journal)
        self.identified: ProcessTree | None = None
        self.life = 1

    @property
    def process_tree(self) -> ProcessTree | None:
        """None before it was identified."""
        return self.identified

    async def wait_ready(self) -> Path:
        """The socket. Raises NoSupervisor if none listens: this run cannot start one."""
        return await check_listening(self.socket)

    async def identify(self, connection: ReconnectingClient) -> Any:
        """Read the supervisor's pid and data directory; returns its status document."""
        document = await connection.request("status")
        supervisor = msgspec.convert(document, _AttachedStatus).supervisor
        self.data_dir = Path(supervisor.data_dir)
        self.identified = ProcessTree(supervisor.pid)
        self.journal.record(SupervisorStarted(t=self.journal.now(), life=1, supervisor=supervisor.pid))
        return document

    async def kill(self, number: int) -> int:
        """Raise UsageError: the program that started the supervisor ends it."""
        raise UsageError(f"the supervisor on {self.socket} belongs to another program and is not sent signal {number}")

    async def restart(self) -> None:
        """Raise UsageError."""
        raise UsageError(f"the supervisor on {self.socket} belongs to another program and is not restarted")

    async def wait_stored(self) -> None:
        """Return at once: the log is not readable here, and no fault takes away the disk of this supervisor."""
        await trio.lowlevel.checkpoint()
