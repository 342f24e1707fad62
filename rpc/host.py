"""Starts planned workers on this machine: what of environment and files belongs to a machine is added here."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import WorkerStartFailed
from rpc.cgroup import Cgroup
from rpc.children import ChildRegistry
from rpc.fork_server import ForkServer
from rpc.pi.agent_dir import AGENT_DIR_VARIABLE, PrivateAgentDir
from rpc.preparation import Preparations
from rpc.process import WorkerProcess
from rpc.prompt_files import PROMPT_DIR, PromptArgument, prompt_files
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec, worker_environment
from wire.files import WORKSPACES_DIR
from wire.process_title import TITLE_VARIABLE

_PARENT_VARIABLE = "POOL_WORKER_PARENT"
"""Tells the bundled agent who must be its parent, so that it does not start for one that has just been killed."""
SESSIONS_DIR = "sessions"
"""Directory of the transcripts, in a data directory."""


def transcript_dir(data_dir: Path, agent: str) -> Path:
    """Where the transcripts of an agent's conversations lie."""
    return data_dir / SESSIONS_DIR / agent


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is started with, whichever machine that happens on.

    ``argv`` names the agent's ``transcript_dir``. ``env``: its own variables, beside what the machine lets through.
    ``prompts`` become files whose paths replace arguments. ``secrets``: values of ``env`` that are hidden in its
    stderr. ``own_agent_dir``: it gets a copy of pi's agent directory. ``is_bundled``: its program is the bundled agent.
    ``may_be_wrapper`` as in ``rpc.spawn.WorkerSpec``. ``prepare``: the command that fills ``cwd`` where no worker has
    been yet; see ``rpc.preparation``.
    """

    worker_id: str
    agent: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str
    prompts: tuple[PromptArgument, ...] = ()
    secrets: tuple[str, ...] = ()
    own_agent_dir: bool = False
    is_bundled: bool = False
    may_be_wrapper: bool = False
    prepare: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # Values of environment variables may be secret, arguments may hold whole system prompts.
        return f"WorkerPlan({self.worker_id} {self.argv[:1]} cwd={self.cwd})"


class WorkerHost:
    """The workers of one supervisor on this machine, as child processes of this one.

    Args:
        data_dir: where transcripts, prompts and private agent directories lie.
        instance: marks every descendant of the supervisor.
        base_env: the environment that ``env_passthrough`` picks from.
        use_cgroups: whether to try a cgroup per worker.

    Attributes:
        children: the live child processes, for a reaper and a state file.
        cgroup: the instance's own cgroup, None where there can be none.
    """

    def __init__(
        self, *, data_dir: Path, instance: str, base_env: Mapping[str, str] | None = None, use_cgroups: bool = True
    ) -> None:
        self.instance = instance
        self.children = ChildRegistry()
        self.cgroup = Cgroup.for_instance(instance) if use_cgroups else None
        self._data_dir = data_dir
        self._base_env = os.environ if base_env is None else base_env
        self._fork_server: ForkServer | None = None
        self._preparations = Preparations(data_dir / "prepared", self.children)

    def close(self) -> None:
        """Remove the instance's cgroup; its workers are gone by then."""
        if self.cgroup is not None:
            self.cgroup.remove()

    def make_directory(self, *parts: str) -> Path:
        """A directory below the data directory, 0700 on every level (``parents=True`` would not see to that).

        Raises WorkerStartFailed.
        """
        directory = self._data_dir
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in parts:
                directory /= part
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise WorkerStartFailed(f"the directory {directory} cannot be made: {exc.strerror}") from exc
        return directory

    @contextmanager
    def prepare(self, plan: WorkerPlan, settings: RpcSettings, log_path: Path | None = None) -> Iterator[WorkerSpec]:
        """What ``spawn`` needs; the files that belong to the worker are removed on leaving the block.

        ``log_path``: where its stderr goes. Raises WorkerStartFailed.
        """
        sessions = self.make_directory(SESSIONS_DIR, plan.agent)
        self._make_default_workspace(plan.cwd)
        with (
            self._agent_dir(plan, sessions) as own_env,
            prompt_files(plan.worker_id, plan.argv, plan.prompts, self.make_directory(PROMPT_DIR)) as argv,
        ):
            marker = f"{self.instance}:{plan.worker_id}"
            variables = {**dict(plan.env), **own_env, _PARENT_VARIABLE: str(os.getpid())}
            if plan.is_bundled:
                variables[TITLE_VARIABLE] = f"{plan.worker_id} {plan.agent}"
            yield WorkerSpec(
                worker_id=plan.worker_id,
                agent=plan.agent,
                marker=marker,
                argv=argv,
                env=tuple(worker_environment(settings, self._base_env, variables.items(), marker).items()),
                cwd=plan.cwd,
                log_path=log_path,
                secrets=plan.secrets,
                may_be_wrapper=plan.may_be_wrapper,
            )

    async def spawn(
        self,
        spec: WorkerSpec,
        settings: RpcSettings,
        *,
        prepare: tuple[str, ...] = (),
        stop: trio.Event,
        on_logged: Callable[[], None] = lambda: None,
    ) -> WorkerProcess:
        """Start what was prepared, forked where that can be. Its owner runs ``supervise``. Raises WorkerStartFailed.

        ``prepare``: the plan's, which may take its time; ``stop`` ends it.
        """
        if prepare:
            await self._preparations.prepare(prepare, spec, settings, stop)
        forked = None if self._fork_server is None else await self._fork_server.start(spec)
        return WorkerProcess.spawn(
            spec, self.children, settings, cgroups=self.cgroup, started=forked, on_logged=on_logged
        )

    async def keep_fork_server(
        self,
        command: tuple[str, ...],
        settings: RpcSettings,
        emit: Callable[[str, dict[str, Any]], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Fork workers of the bundled agent (``command``) off one process while this runs; see ``rpc.fork_server``.

        Only where a ``Reaper`` runs: no one else reaps a worker that ends while it is forked.
        """
        own_env = {_PARENT_VARIABLE: str(os.getpid())}
        marker = f"{self.instance}:"  # of no worker
        self._fork_server = ForkServer(
            command,
            worker_environment(settings, self._base_env, own_env.items(), marker),
            marker,
            self.children,
            on_lost=lambda reason: emit("fork_server_lost", {"reason": reason}),
        )
        await self._fork_server.run(task_status=task_status)

    def _make_default_workspace(self, cwd: str) -> None:
        """The directory of a role that has none of its own: only the supervisor's machine is sure to have it."""
        default = Path(os.path.realpath(self._data_dir)) / WORKSPACES_DIR
        if Path(cwd).is_relative_to(default):
            self.make_directory(WORKSPACES_DIR, *Path(cwd).relative_to(default).parts)

    @contextmanager
    def _agent_dir(self, plan: WorkerPlan, sessions: Path) -> Iterator[dict[str, str]]:
        """A private copy of pi's agent directory, which it writes run-time settings into; removed with the worker."""
        if not plan.own_agent_dir:
            yield {}
            return
        env = {**self._base_env, **dict(plan.env)}
        source = Path(env.get(AGENT_DIR_VARIABLE) or Path(env.get("HOME", "/")) / ".pi" / "agent")
        with PrivateAgentDir(source, self.make_directory("agent-dirs") / plan.worker_id, sessions) as home:
            yield home.environ
