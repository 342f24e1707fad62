"""A supervisor that somebody else runs: it is driven and looked at, but neither started nor ended."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from doors.control.client_socket import connect
from errors import RequestTimeout, UsageError
from stress.connection import ReconnectingClient
from stress.facts import Fact, FaultInjected, ObservedProcess, SupervisorStarted
from stress.sampler import ProcessTree, signal_process

_ANSWER_SECONDS = 10.0
"""As long as ``pool status`` waits."""


class PoolLimits(msgspec.Struct, frozen=True):
    """Of its pool, what the judges have to know; see ``PoolSettings``."""

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


def read_limits(document: Any) -> PoolLimits:
    """The limits in a status document."""
    return msgspec.convert(document, _AttachedStatus).pool.limits


async def fetch_limits(socket: Path) -> PoolLimits:
    """The limits of the supervisor on ``socket``. Raises NoSupervisor; RequestTimeout where it does not answer."""
    asking = ReconnectingClient(functools.partial(check_listening, socket))
    with trio.move_on_after(_ANSWER_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking.run)
            limits = read_limits(await asking.request("status"))
            nursery.cancel_scope.cancel()
            return limits
    raise RequestTimeout(f"the supervisor on {socket} did not answer status in time; is it stopped or overloaded?")


async def check_listening(socket: Path) -> Path:
    """The socket. Raises NoSupervisor where none listens on it."""
    (await trio.to_thread.run_sync(connect, socket)).close()
    return socket


class AttachedTarget:
    """Implements ``faults.port.Target``, but for what would end the supervisor."""

    def __init__(self, socket: Path, *, clock: Callable[[], float], tell: Callable[[Fact], None]) -> None:
        self.socket = socket
        self.data_dir = Path()
        self.restart_lock = trio.Lock()
        self.process_tree: ProcessTree | None = None
        self.life = 1
        self._clock = clock
        self._record = tell

    async def wait_ready(self) -> Path:
        """The socket. Raises NoSupervisor where none listens any more: this run cannot start one."""
        return await check_listening(self.socket)

    async def identify(self, connection: ReconnectingClient) -> Any:
        """Ask who it is; its status document."""
        document = await connection.request("status")
        supervisor = msgspec.convert(document, _AttachedStatus).supervisor
        self.data_dir = Path(supervisor.data_dir)
        self.process_tree = ProcessTree(supervisor.pid)
        self._record(SupervisorStarted(t=self._clock(), life=1, supervisor=supervisor.pid))
        return document

    @property
    def supervisor(self) -> int | None:
        """Its pid; None before it was met."""
        return None if self.process_tree is None else self.process_tree.supervisor

    def workers(self) -> list[ObservedProcess]:
        """Its live workers now."""
        return [] if self.process_tree is None else list(self.process_tree.scan().workers)

    def signal(self, process: ObservedProcess, number: int) -> bool:
        """Signal that very process; whether it was there."""
        return signal_process(process, number)

    async def kill(self, number: int) -> int:
        """Refused: the program that started it ends it."""
        raise UsageError(f"the supervisor on {self.socket} is somebody else's, and is not sent signal {number}")

    async def restart(self) -> None:
        """Refused likewise."""
        raise UsageError(f"the supervisor on {self.socket} is somebody else's, and is not started again")

    async def wait_stored(self) -> None:
        """At once: its log cannot be read here, and no fault takes its disk away."""
        await trio.lowlevel.checkpoint()

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock()

    def record_fault(
        self, fault: str, action: str, *, worker: str = "", pid: int = 0, seconds: float = 0.0, hurts: bool = True
    ) -> None:
        """Write down what is injected."""
        now = self._clock()
        self._record(
            FaultInjected(t=now, fault=fault, action=action, worker=worker, pid=pid, seconds=seconds, hurts=hurts)
        )

    def record(self, fact: Fact) -> None:
        """Write down what somebody else has seen."""
        self._record(fact)
