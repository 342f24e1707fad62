"""Workers as local processes: from a profile to a running process with its client, and to its last descendant's end."""

import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import trio

from errors import WorkerStartFailed
from pool.local_worker import LocalWorker
from pool.plan import dialect_for, settings_for, worker_plan
from pool.worker_logs import LogChanges, WorkerLogs
from profiles import DIALECTS, CapabilityProfile
from rpc.cgroup import OrphanGuarantee, orphan_guarantee
from rpc.client import RpcClient
from rpc.data_paths import DataPaths
from rpc.dialect import Dialect
from rpc.host import WorkerHost
from rpc.journal import JournalWriter
from rpc.rlimit_mark import can_mark_by_rlimit
from rpc.settings import RpcSettings
from rpc.spawn import OUT_OF_RESOURCES
from rpc.stderr_log import note_in_log
from rpc.transport import NodeProcess
from wire.log_file import ENDED


class LocalLauncher:
    """Starts workers as child processes of this one.

    Args:
        settings: limits and times of the wire.
        data_dir: where transcripts (``sessions/``), stderr logs (``logs/``) and private agent directories live.
        instance: marks every descendant of this supervisor; a random one by default.
        base_env: the environment that ``settings.env_passthrough`` picks from.
        subreaper: whether this process has become one (only ``pool run`` does).
        use_cgroups: whether to try a cgroup per worker.
        attended: asked whether a front end is there to answer the dialogs of the worker of that id.
        log_changes: notified of each worker's log that has grown.

    Attributes:
        settings: what the next worker is started with; a reload replaces it, and living workers keep theirs.
        children: the live child processes, for a reaper and a state file.
        cgroup: the instance's own cgroup, None where there can be none; ``close`` removes it.
        host: starts what is planned here.
        data_dir, attended, log_changes: as given.
        known_transcripts: those that existed once, and must not be missing later.
        moved_path: the path here of one in a data directory of which this one is a copy.
    """

    def __init__(
        self,
        settings: RpcSettings | None = None,
        *,
        data_dir: Path,
        instance: str | None = None,
        base_env: Mapping[str, str] | None = None,
        subreaper: bool = False,
        use_cgroups: bool = True,
        attended: Callable[[str], bool] = lambda _worker: False,
        log_changes: LogChanges | None = None,
    ) -> None:
        self.instance = instance or secrets.token_hex(8)
        self.host = WorkerHost(data_dir=data_dir, instance=self.instance, base_env=base_env, use_cgroups=use_cgroups)
        self.children, self.cgroup, self.close = self.host.children, self.host.cgroup, self.host.close
        self.settings = settings or RpcSettings()
        self.data_dir = data_dir
        self._guarantee = orphan_guarantee(
            cgroup=self.cgroup is not None, subreaper=subreaper, limit_mark=can_mark_by_rlimit()
        )
        self.attended = attended
        self.known_transcripts: set[str] = set()
        self.moved_path = DataPaths(data_dir).used
        self._logs = WorkerLogs()
        self.log_changes = log_changes or LogChanges()

    @classmethod
    @asynccontextmanager
    async def temporary(cls, settings: RpcSettings | None = None) -> AsyncGenerator[Self, None]:
        """A launcher whose data directory lives as long as the block."""
        directory = Path(tempfile.mkdtemp(prefix="pool-"))
        launcher = cls(settings, data_dir=directory)
        try:
            yield launcher
        finally:
            launcher.close()
            shutil.rmtree(directory, ignore_errors=True)

    @asynccontextmanager
    async def open(
        self,
        worker_id: str,
        profile: CapabilityProfile,
        *,
        force: trio.Event,
        near: str = "",  # noqa: ARG002 - the interface's
    ) -> AsyncGenerator[LocalWorker, None]:
        """Start a worker; on leaving the block it is gone with all its descendants. Raises WorkerStartFailed."""
        plan, settings = worker_plan(worker_id, profile, self.data_dir), settings_for(self.settings, profile)
        dialect = dialect_for(profile, settings, self.data_dir, partial(self.attended, worker_id))
        with self.open_log(worker_id) as log, self.host.prepare(plan, settings, log) as spec:
            on_logged = partial(self.log_changes.note, worker_id)
            process = await self.host.spawn(spec, settings, prepare=plan.prepare, stop=force, on_logged=on_logged)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.supervise)
                client, journal = worker_client(process, dialect, settings, worker_id, profile)
                nursery.start_soon(client.run)
                try:
                    yield LocalWorker(
                        worker_id,
                        process,
                        client,
                        self.known_transcripts,
                        dialect=profile.dialect,
                        journal=journal,
                        moved=self.moved_path,
                    )
                finally:
                    with trio.CancelScope(shield=True):  # the kill ladder has deadlines of its own
                        await stop_worker(process, client, force)
                    if journal is not None:
                        journal.process_ended(in_order=process.ended_in_order)

    async def keep_fork_server(
        self,
        emit: Callable[[str, dict[str, Any]], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """As of ``WorkerHost.keep_fork_server``."""
        command = DIALECTS["native"].default_command
        await self.host.keep_fork_server(command, self.settings, emit, task_status=task_status)

    def guarantee(self) -> OrphanGuarantee:
        """How sure it is that no descendant of a worker survives it."""
        return self._guarantee

    @contextmanager
    def open_log(self, worker_id: str) -> Iterator[Path]:
        """Where its stderr goes; the files of the workers that ended first make room."""
        directory = self.host.make_directory("logs")
        try:
            log = self._logs.open(directory, worker_id, self.settings.log_workers)
        except OSError as exc:
            why = OUT_OF_RESOURCES.get(exc.errno or 0, f"the logs in {directory} cannot be read: {exc.strerror}")
            raise WorkerStartFailed(why) from exc
        try:
            yield log
        except WorkerStartFailed as exc:  # there is no process that could have written it
            note_in_log(log, f"{ENDED}: {exc.message.removeprefix(f'worker {worker_id} ')}")
            raise
        finally:
            self._logs.close(log)


async def stop_worker(process: NodeProcess, client: RpcClient, force: trio.Event) -> None:
    """End a worker by the kill ladder, its turn first; by SIGKILL once ``force`` is set."""

    async def abort() -> None:
        if client.is_running:
            await client.request("abort", {}, timeout=client.settings.abort_grace)

    async def hurry() -> None:
        await force.wait()
        await process.stop(force=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurry)
        await process.stop(abort=abort, force=force.is_set())
        nursery.cancel_scope.cancel()


def worker_client(
    process: NodeProcess, dialect: Dialect, settings: RpcSettings, worker_id: str, profile: CapabilityProfile
) -> tuple[RpcClient, JournalWriter | None]:
    """The client of a worker, wherever its process runs, and its journal where its dialect keeps one."""
    journal = JournalWriter() if DIALECTS[profile.dialect].keeps_journal else None
    append = None if journal is None else journal.append
    client = RpcClient(process, dialect, settings, name=worker_id, mask=process.mask, journal=append)
    return client, journal
