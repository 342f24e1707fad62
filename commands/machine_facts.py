"""The facts about this machine that ``pool doctor`` judges."""

import errno
import os
import resource
import shutil
import socket as socket_of
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from cluster.settings import local_limit
from commands.agent_facts import key_line
from commands.cluster_checks import ClusterFacts
from commands.doctor_checks import AgentFacts, AgentProbe, HttpFacts, MachineFacts, WorkspaceFacts
from doors.http.settings import HttpSettings, is_loopback, url_of
from doors.http.tokens import TokenSource, find_token_source
from doors.locations import is_listening, read_lock_holder
from errors import UsageError
from profiles import DIALECTS, AgentSettings, ProfilesSettings, build_profile
from profiles.catalogue import AgentMake, make_of
from profiles.command_line import worker_argv
from router.workspaces import find_workspace, workspace_problem
from rpc.cgroup import Cgroup
from rpc.orphans import become_subreaper
from settings.config_file import redacted_arguments
from settings.schema import Settings
from wire.addresses import parse_bind
from wire.tokens import read_token

_PROBE_TIMEOUT = 10.0


def gather_facts(
    settings: Settings,
    data_dir: Path,
    socket: Path,
    *,
    on_probe: Callable[[Sequence[str]], None] = lambda _names: None,
    probe_seconds: float = 60.0,
) -> MachineFacts:
    """Look at this machine. Makes and removes one cgroup, starts ``node --version`` where an agent needs node.

    Starts the agents of dialect ``acp`` that are installed, for ``probe_seconds`` at most, and the programs of nodes
    over ssh; ``on_probe`` is called with their names before.
    """
    inherited = {name: os.environ[name] for name in settings.rpc.env_passthrough if name in os.environ}
    defined = [_agent(settings, name, inherited) for name in settings.agent_names()]
    agents = _started_agents(settings, defined, on_probe, probe_seconds)
    supervisor = _running_supervisor(data_dir)
    return MachineFacts(
        python=(sys.version_info.major, sys.version_info.minor),
        platform=sys.platform,
        max_workers=settings.pool.max,
        worker_memory=settings.pool.worker_memory,
        agents=agents,
        node=_node_version() if any(agent.needs_node for agent in agents) else None,
        cgroup=_can_make_cgroups(),
        pidfd=hasattr(os, "pidfd_open"),
        subreaper=_can_be_subreaper(),
        pipe_pages_soft=_read_number(Path("/proc/sys/fs/pipe-user-pages-soft")),
        is_root=os.geteuid() == 0,
        open_files=_open_files_limit(),
        memory=psutil.virtual_memory().total,
        data_dir=str(data_dir),
        data_dir_problem=_write_problem(data_dir),
        socket=str(socket),
        http=_http(settings.http, data_dir, supervisor) if settings.http.bind else None,
        supervisor=supervisor,
        workspaces=tuple(_workspaces(settings, data_dir)),
        workers_here=local_limit(settings.cluster, settings.pool.max),
        cluster=_cluster(settings, data_dir, supervisor, on_probe) if settings.cluster.is_on else None,
    )


def _cluster(
    settings: Settings, data_dir: Path, supervisor: int | None, on_probe: Callable[[Sequence[str]], None]
) -> ClusterFacts:
    from commands.cluster_facts import gather_cluster

    return gather_cluster(
        settings.cluster,
        data_dir,
        worker_memory=settings.pool.worker_memory,
        port_problem=partial(_port_problem, supervisor=supervisor),
        on_probe=on_probe,
    )


def _http(settings: HttpSettings, data_dir: Path, supervisor: int | None) -> HttpFacts:
    host, port = parse_bind(settings.bind)
    place = find_token_source(settings, os.environ, data_dir)
    return HttpFacts(
        url=url_of((host, port)) if port else "any free port, which `pool status` shows",
        token=place.description,
        is_local=is_loopback(host),
        is_token_made=place.is_made,
        token_problem=_token_problem(place),
        max_connections=settings.max_connections,
        port_problem=_port_problem(host, port, supervisor=supervisor) if port else None,
    )


def _port_problem(host: str, port: int, *, supervisor: int | None) -> str | None:
    """Why listening there fails; None for a running supervisor's own port."""
    try:
        family, kind, _, _, address = socket_of.getaddrinfo(host, port, type=socket_of.SOCK_STREAM)[0]
        with socket_of.socket(family, kind) as probe:
            probe.setsockopt(socket_of.SOL_SOCKET, socket_of.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            return exc.strerror or str(exc)
    else:
        return None
    holder = _listening_pid(port)
    if supervisor is not None and holder in (None, supervisor):
        return None
    return "another process listens there" + ("" if holder is None else f": {_process_name(holder)}")


def _listening_pid(port: int) -> int | None:
    """The process that listens on the port, if the system shows it."""
    try:
        found = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    pids = (each.pid for each in found if each.status == psutil.CONN_LISTEN and tuple(each.laddr)[1:] == (port,))
    return next((pid for pid in pids if pid is not None), None)


def _process_name(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"


def _running_supervisor(data_dir: Path) -> int | None:
    holder = read_lock_holder(data_dir)
    return holder.pid if holder is not None and is_listening(Path(holder.socket)) else None


def _workspaces(settings: Settings, data_dir: Path) -> Iterator[WorkspaceFacts]:
    """Every directory that a setting names, once; those that the pool makes itself lie in the data directory."""
    seen = set()
    for agent in settings.agent_names():
        for role in settings.role_names():
            try:
                found = find_workspace(settings.router, settings, agent, role, data_dir)
            except UsageError as exc:
                yield WorkspaceFacts(f"of {agent}/{role}", f"agents.{agent}", exc.message)
                continue
            if found.source != "default" and found.path not in seen and not settings.has_remote_workspace(agent):
                seen.add(found.path)
                is_shared = not settings.has_workspace_per_session(agent)
                yield WorkspaceFacts(found.path, found.source, workspace_problem(found), is_shared)


def _token_problem(place: TokenSource) -> str | None:
    if place.file is None or (place.is_made and not place.file.exists()):
        return None  # it was looked at with the settings, or will be made
    try:
        read_token(place.file)
    except UsageError as exc:
        return exc.message
    return None


def _agent(profiles: ProfilesSettings, name: str, inherited: Mapping[str, str]) -> AgentFacts:
    try:
        profile = build_profile(profiles, name, "default", str(Path.cwd()))
    except UsageError as exc:
        return AgentFacts(name, "", problem=exc.message)
    definition = profiles.agents.get(name, AgentSettings())
    program, make = profile.command[0], make_of(profile.dialect, profile.command)
    path = shutil.which(program, path=dict(profile.env).get("PATH"))
    return AgentFacts(
        name,
        profile.dialect,
        program,
        path,
        problem=f"{program} is not executable" if path is None and Path(program).is_file() else None,
        keyless_server=_keyless_server(definition, {**inherited, **dict(profile.env)}),
        needs_node=profiles.traits_of(name).needs_node,
        install=make.install if make and program == make.command[0] else "",
        arguments=tuple(redacted_arguments(list(worker_argv(profile, None)[1:]))),
        keeps_workers=definition.resume == "pin",
        chooses_mode=definition.mode is not None or definition.permissions == "auto",
    )


def _started_agents(
    settings: Settings, agents: Sequence[AgentFacts], on_probe: Callable[[Sequence[str]], None], limit: float
) -> tuple[AgentFacts, ...]:
    """The same, with how those have started whose login and mode only a start can show."""
    names = [
        each.name
        for each in agents
        if each.path and each.problem is None and DIALECTS[each.dialect].ready_with_conversation
    ]
    if not names:
        return tuple(agents)
    from commands.agent_probe import probe_agents

    on_probe(names)
    probes = probe_agents(settings, names, limit)
    return tuple(_with_probe(settings, agent, probes.get(agent.name)) for agent in agents)


def _with_probe(settings: Settings, agent: AgentFacts, probe: AgentProbe | None) -> AgentFacts:
    """How it has started; where its program does not say which make it is, its own name does."""
    if probe is None:
        return agent
    make = make_of(agent.dialect, settings.agents[agent.name].command, probe.program)
    return msgspec.structs.replace(
        agent, probe=probe, login=_login(agent.name, make) if make else "", asking_mode=(make and make.mode) or ""
    )


def _login(agent: str, make: AgentMake) -> str:
    key = key_line(agent, make)
    return f"{make.login} (in a terminal), or {key}" if key else f"{make.login} (in a terminal)"


def _keyless_server(agent: AgentSettings, env: Mapping[str, str]) -> str | None:
    """The model server that the bundled agent would ask without a key; one on this machine needs none."""
    is_openai = agent.provider == "openai" or (agent.provider is None and (agent.model or "").startswith("openai/"))
    if not agent.traits.bundled_flags or agent.command or not is_openai or env.get("OPENAI_API_KEY"):
        return None
    url = urlsplit(agent.base_url or env.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")
    return None if is_loopback(url.hostname or "") else url.hostname


def _node_version() -> str | None:
    node = shutil.which("node")
    if node is None:
        return None
    try:
        answer = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"does not run: {exc}"
    return answer.stdout.strip() or None


def _can_make_cgroups() -> bool:
    cgroup = Cgroup.for_instance(f"doctor-{os.getpid()}")
    if cgroup is None:
        return False
    cgroup.remove()
    return True


def _can_be_subreaper() -> bool:
    possible = become_subreaper()
    become_subreaper(enabled=False)
    return possible


def _open_files_limit() -> int:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # another kernel


def _write_problem(path: Path) -> str | None:
    """What keeps us from writing there, or from making it; None when nothing does."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return f"{existing} is no directory"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"no right to write in {existing}"
