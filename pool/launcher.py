"""Workers as local processes: from a profile to a running process with its client, and to its last descendant's end."""

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import trio

from errors import WorkerStartFailed
from pool.local_worker import LocalWorker
from pool.prompt_files import PROMPT_DIR, prompt_files
from pool.worker_logs import LogChanges, WorkerLogs
from profiles import DIALECTS, CapabilityProfile, allows_tool, worker_argv
from rpc.acp.options import AcpOptions
from rpc.cgroup import Cgroup, OrphanGuarantee, orphan_guarantee
from rpc.children import ChildRegistry
from rpc.client import RpcClient
from rpc.dialect import Dialect, make_dialect
from rpc.fork_server import ForkServer
from rpc.journal import JournalWriter
from rpc.pi.agent_dir import AGENT_DIR_VARIABLE, PrivateAgentDir
from rpc.process import WorkerProcess
from rpc.rlimit_mark import can_mark_by_rlimit
from rpc.settings import RpcSettings
from rpc.spawn import OUT_OF_RESOURCES, WorkerSpec, worker_environment
from rpc.stderr_log import note_in_log
from wire.log_file import ENDED
from wire.process_title import TITLE_VARIABLE
from wire.units import Seconds
from wire.version import VERSION

_PARENT_VARIABLE = "POOL_WORKER_PARENT"
"""Tells the bundled agent who must be its parent, so that it does not start for one that has just been killed."""


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
        log_changes: told of each worker's log that has grown.

    Attributes:
        settings: what the next worker is started with; a reload replaces it, and living workers keep theirs.
        children: the live child processes, for a reaper and a state file.
        cgroup: the instance's own cgroup, None where there can be none.
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
        self.children = ChildRegistry()
        self.cgroup = Cgroup.for_instance(self.instance) if use_cgroups else None
        self.settings = settings or RpcSettings()
        self._data_dir = data_dir
        self._base_env = os.environ if base_env is None else base_env
        self._guarantee = orphan_guarantee(
            cgroup=self.cgroup is not None, subreaper=subreaper, limit_mark=can_mark_by_rlimit()
        )
        self._attended = attended
        self._fork_server: ForkServer | None = None
        self.known_transcripts: set[str] = set()
        self._logs = WorkerLogs()
        self._log_changes = log_changes or LogChanges()

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

    def close(self) -> None:
        """Remove the instance's cgroup; its workers are gone by then."""
        if self.cgroup is not None:
            self.cgroup.remove()

    @asynccontextmanager
    async def open(
        self, worker_id: str, profile: CapabilityProfile, *, force: trio.Event
    ) -> AsyncGenerator[LocalWorker, None]:
        """Start a worker; on leaving the block it is gone with all its descendants. Raises WorkerStartFailed."""
        with (
            self._agent_dir(worker_id, profile) as own_env,
            self._log(worker_id) as log,
            self._arguments(worker_id, profile) as argv,
        ):
            spec, settings = self._spec(worker_id, profile, argv, own_env, log), self._settings_for(profile)
            forked = None if self._fork_server is None else await self._fork_server.start(spec)
            process = WorkerProcess.spawn(
                spec,
                self.children,
                settings,
                cgroups=self.cgroup,
                started=forked,
                on_logged=partial(self._log_changes.note, worker_id),
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.supervise)
                journal = JournalWriter() if DIALECTS[profile.dialect].keeps_journal else None
                client = RpcClient(
                    process,
                    self._dialect(worker_id, profile, settings),
                    settings,
                    name=worker_id,
                    mask=process.mask,
                    journal=None if journal is None else journal.append,
                )
                nursery.start_soon(client.run)
                try:
                    yield LocalWorker(
                        worker_id, process, client, self.known_transcripts, dialect=profile.dialect, journal=journal
                    )
                finally:
                    with trio.CancelScope(shield=True):  # the kill ladder has deadlines of its own
                        await self._stop(process, client, force)
                    if journal is not None:
                        journal.process_ended(in_order=process.ended_in_order)

    async def keep_fork_server(
        self,
        emit: Callable[[str, dict[str, Any]], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Fork workers of the bundled agent off one process while this runs; see ``rpc.fork_server``.

        Only where a ``Reaper`` runs: no one else reaps a worker that ends while it is forked.
        """
        own_env = {_PARENT_VARIABLE: str(os.getpid())}
        marker = f"{self.instance}:"  # of no worker
        self._fork_server = ForkServer(
            DIALECTS["native"].default_command,
            worker_environment(self.settings, self._base_env, own_env.items(), marker),
            marker,
            self.children,
            on_lost=lambda reason: emit("fork_server_lost", {"reason": reason}),
        )
        await self._fork_server.run(task_status=task_status)

    def guarantee(self) -> OrphanGuarantee:
        """How sure it is that no descendant of a worker survives it."""
        return self._guarantee

    def _arguments(self, worker_id: str, profile: CapabilityProfile) -> AbstractContextManager[tuple[str, ...]]:
        """Its command line, with system prompts in files that live as long as it does."""
        argv = worker_argv(profile, str(self._make_directory("sessions", profile.agent)))
        return prompt_files(worker_id, profile, argv, self._make_directory(PROMPT_DIR))

    def _spec(
        self,
        worker_id: str,
        profile: CapabilityProfile,
        argv: tuple[str, ...],
        own_env: Mapping[str, str],
        log: Path,
    ) -> WorkerSpec:
        marker = f"{self.instance}:{worker_id}"
        own_env = {**dict(profile.env), **own_env, _PARENT_VARIABLE: str(os.getpid())}
        if profile.command == DIALECTS["native"].default_command:
            own_env[TITLE_VARIABLE] = f"{worker_id} {profile.agent}"
        env = worker_environment(self.settings, self._base_env, own_env.items(), marker)
        return WorkerSpec(
            worker_id=worker_id,
            agent=profile.agent,
            marker=marker,
            argv=argv,
            env=tuple(env.items()),
            cwd=profile.cwd,
            log_path=log,
            secrets=profile.secrets,
            may_be_wrapper=DIALECTS[profile.dialect].may_be_wrapper,
        )

    @contextmanager
    def _log(self, worker_id: str) -> Iterator[Path]:
        """Where its stderr goes; the files of the workers that ended first make room."""
        directory = self._make_directory("logs")
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

    def _make_directory(self, *parts: str) -> Path:
        """A directory below the data directory, 0700 on every level (``parents=True`` would not see to that)."""
        directory = self._data_dir
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in parts:
                directory /= part
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise WorkerStartFailed(f"the directory {directory} cannot be made: {exc.strerror}") from exc
        return directory

    def _settings_for(self, profile: CapabilityProfile) -> RpcSettings:
        grace = max(self.settings.abort_grace, Seconds(DIALECTS[profile.dialect].abort_seconds))
        return msgspec.structs.replace(self.settings, abort_grace=grace)

    def _dialect(self, worker_id: str, profile: CapabilityProfile, settings: RpcSettings) -> Dialect:
        return make_dialect(
            profile.dialect,
            settings=settings,
            allow_bash=allows_tool(profile, "bash"),
            attended=partial(self._attended, worker_id),
            in_memory="--no-session" in worker_argv(profile, ""),
            acp=self._acp_options(profile) if DIALECTS[profile.dialect].keeps_journal else None,
        )

    def _acp_options(self, profile: CapabilityProfile) -> AcpOptions:
        declared = {name: msgspec.json.decode(text) for name, text in profile.declared}
        return AcpOptions(
            agent=profile.agent,
            cwd=profile.cwd,
            journal_dir=str(self._make_directory("sessions", profile.agent)),
            client_version=VERSION,
            mode=profile.soft.mode,
            model=profile.soft.model,
            thinking=profile.soft.thinking,
            options=msgspec.json.decode(profile.soft.options or "{}"),
            auth_method=declared.get("auth_method"),
            instructions=declared.get("preamble", ""),
            mcp_servers=declared.get("mcp_servers", []),
            permission_mode=declared["permission_mode"],
        )

    @contextmanager
    def _agent_dir(self, worker_id: str, profile: CapabilityProfile) -> Iterator[dict[str, str]]:
        """A private copy of pi's agent directory, which it writes run-time settings into; removed with the worker."""
        if not DIALECTS[profile.dialect].private_agent_dir:
            yield {}
            return
        env = {**self._base_env, **dict(profile.env)}
        source = Path(env.get(AGENT_DIR_VARIABLE) or Path(env.get("HOME", "/")) / ".pi" / "agent")
        home = PrivateAgentDir(
            source, self._make_directory("agent-dirs") / worker_id, self._make_directory("sessions", profile.agent)
        )
        with home:
            yield home.environ

    async def _stop(self, process: WorkerProcess, client: RpcClient, force: trio.Event) -> None:
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
