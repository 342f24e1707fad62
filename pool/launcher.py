"""Workers as local processes: from a profile to a running process with its client, and to its last descendant's end."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from collections.abc import Iterator
from pathlib import Path

import psutil
import trio

from errors import ResumeFailed, WorkerStartFailed
from pool.worker import ProcessFacts
from profiles import CapabilityProfile, worker_argv
from rpc.client import RpcClient
from rpc.dialects import make_dialect
from rpc.orphans import orphan_guarantee
from rpc.pi.home import private_agent_dir
from rpc.process import ChildRegistry, WorkerProcess, WorkerSpec, worker_environment
from rpc.settings import RpcSettings
from wire.transcript import repair_transcript

__all__ = ["LocalLauncher", "LocalWorker"]


class LocalWorker:
    """One worker process on this machine and its client."""

    def __init__(self, worker_id: str, process: WorkerProcess, client: RpcClient) -> None:
        self.id = worker_id
        self.client = client
        self._process = process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def facts(self) -> ProcessFacts:
        """Resident size, CPU time and whether it is suspended, from the process table; empty once it is gone."""
        try:
            process = psutil.Process(self._process.pid)
            with process.oneshot():
                times = process.cpu_times()
                return ProcessFacts(
                    rss=process.memory_info().rss,
                    cpu=times.user + times.system,
                    suspended=process.status() == psutil.STATUS_STOPPED,
                )
        except psutil.Error:
            return ProcessFacts()

    def prepare_resume(self, transcript: str) -> bool:
        """See ``PoolWorker.prepare_resume``."""


class LocalLauncher:
    """Starts workers as child processes of this one.

    Args:
        settings: limits and times of the wire.
        data_dir: where transcripts (``sessions/``), stderr logs (``logs/``) and private agent directories live.
        instance: marks every descendant of this supervisor; a random one by default.
        base_env: the environment that ``settings.env_passthrough`` picks from.
        on_change: called after every spawn and every exit with the live processes, to keep a state file.
    """
