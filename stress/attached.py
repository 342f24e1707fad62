"""A supervisor that somebody else runs: it is driven and looked at, but neither started nor ended."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from doors.control.client_socket import connect
from errors import RequestTimeout, UsageError
from stress.connection import Connection
from stress.facts import Fact, Injected, LifeBegan, WorkerProcess
from stress.sampler import Household, signal_process

_ANSWER_SECONDS = 10.0
"""As long as ``pool status`` waits."""


class Limits(msgspec.Struct, frozen=True):
    """Of its pool, what the judges have to know; see ``PoolSettings``."""

    max: int
    spawn_burst: int
    spawn_rate: float
    backoff_max: float
    age_step: float


class _Pool(msgspec.Struct):
    limits: Limits


class _Supervisor(msgspec.Struct):
    pid: int
    data_dir: str


class _Status(msgspec.Struct):
    pool: _Pool
    supervisor: _Supervisor


def read_limits(document: Any) -> Limits:
    """The limits in a status document."""
    return msgspec.convert(document, _Status).pool.limits


async def ask_limits(socket: Path) -> Limits:
    """The limits of the supervisor on ``socket``. Raises NoSupervisor; RequestTimeout where it does not answer."""
    asking = Connection(functools.partial(somebody_listens, socket))
    with trio.move_on_after(_ANSWER_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking.run)
            limits = read_limits(await asking.ask("status"))
            nursery.cancel_scope.cancel()
            return limits
    raise RequestTimeout(f"the supervisor on {socket} did not answer status in time; is it stopped or overloaded?")


async def somebody_listens(socket: Path) -> Path:
    """The socket. Raises NoSupervisor where nobody listens on it."""
    (await trio.to_thread.run_sync(connect, socket)).close()
    return socket


class AttachedTarget:
    """Implements ``faults.port.Target``, but for what would end the supervisor."""

    def __init__(self, socket: Path, *, clock: Callable[[], float], tell: Callable[[Fact], None]) -> None:
        self.socket = socket
        self.data_dir = Path()
        self.ending = trio.Lock()
        self.household: Household | None = None
        self.life = 1
        self._clock = clock
        self._tell = tell

    async def ready(self) -> Path:
        """The socket. Raises NoSupervisor where nobody listens any more: who else should start another one?"""
        return await somebody_listens(self.socket)

    async def meet(self, connection: Connection) -> Any:
        """Ask who it is; its status document."""
        document = await connection.ask("status")
        supervisor = msgspec.convert(document, _Status).supervisor
        self.data_dir = Path(supervisor.data_dir)
        self.household = Household(supervisor.pid)
        self._tell(LifeBegan(t=self._clock(), life=1, supervisor=supervisor.pid))
        return document

    @property
    def supervisor(self) -> int | None:
        """Its pid; None before it was met."""
        return None if self.household is None else self.household.supervisor

    def workers(self) -> list[WorkerProcess]:
        """Its live workers now."""
        return [] if self.household is None else list(self.household.look().workers)

    def signal(self, process: WorkerProcess, number: int) -> bool:
        """Signal that very process; whether it was there."""
        return signal_process(process, number)

    async def kill(self, number: int) -> int:
        """Refused: whoever started it ends it."""
        raise UsageError(f"the supervisor on {self.socket} is somebody else's, and is not sent signal {number}")

    async def restart(self) -> None:
        """Refused likewise."""
        raise UsageError(f"the supervisor on {self.socket} is somebody else's, and is not started again")

    async def stored(self) -> None:
        """At once: its log is not ours to read, and nobody takes its disk away."""
        await trio.lowlevel.checkpoint()

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock()

    def tell(
        self, fault: str, action: str, *, worker: str = "", pid: int = 0, seconds: float = 0.0, hurts: bool = True
    ) -> None:
        """Write down what is injected."""
        now = self._clock()
        self._tell(Injected(t=now, fault=fault, action=action, worker=worker, pid=pid, seconds=seconds, hurts=hurts))

    def see(self, fact: Fact) -> None:
        """Write down what somebody else has seen."""
        self._tell(fact)
