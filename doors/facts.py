"""What ``pool doctor`` looks at on this machine; judging it is ``doors.doctor``'s business."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from doors.doctor import AgentFacts, Facts, HttpFacts
from doors.http.binding import parse_bind, url_of
from doors.http.hosts import is_loopback
from doors.http.settings import HttpSettings
from doors.http.tokens import TokenPlace, place_of_token, read_token
from errors import UsageError
from pool.settings import PoolSettings
from profiles import ProfilesSettings, build_profile
from rpc.cgroup import Cgroup
from rpc.orphans import become_subreaper

__all__ = ["gather_facts"]

_PROBE_TIMEOUT = 10.0


def gather_facts(
    pool: PoolSettings, profiles: ProfilesSettings, http: HttpSettings, *, data_dir: Path, socket: Path
) -> Facts:
    """Look at this machine. Makes and removes one cgroup, starts ``node --version`` where an agent needs node."""
    agents = tuple(_agent(profiles, name) for name in profiles.agent_names())
    return Facts(
        python=(sys.version_info.major, sys.version_info.minor),
        platform=sys.platform,
        max_workers=pool.max,
        worker_memory=pool.worker_memory,
        agents=agents,
        node=_node_version() if any(agent.dialect == "pi" for agent in agents) else None,
        cgroup=_can_make_cgroups(),
        pidfd=hasattr(os, "pidfd_open"),
        subreaper=_can_be_subreaper(),
        pipe_pages_soft=_read_number(Path("/proc/sys/fs/pipe-user-pages-soft")),
        is_root=os.geteuid() == 0,
        open_files=_open_files_limit(),
        memory=psutil.virtual_memory().total,
        data_dir=str(data_dir),
        data_dir_problem=_why_not_writable(data_dir),
        socket=str(socket),
        http=_http(http, data_dir) if http.bind else None,
    )


def _http(settings: HttpSettings, data_dir: Path) -> HttpFacts:
    host, port = parse_bind(settings.bind)
    place = place_of_token(settings, os.environ, data_dir)
    return HttpFacts(
        url=url_of((host, port)) if port else "any free port, which `pool status` shows",
        token=place.words,
        is_local=is_loopback(host),
        is_token_made=place.is_made,
        token_problem=_token_problem(place),
        max_connections=settings.max_connections,
    )


def _token_problem(place: TokenPlace) -> str | None:
    if place.file is None or (place.is_made and not place.file.exists()):
        return None  # it was looked at with the settings, or will be made
    try:
        read_token(place.file)
    except UsageError as exc:
        return exc.message
    return None


def _agent(profiles: ProfilesSettings, name: str) -> AgentFacts:
    try:
        profile = build_profile(profiles, name, "default", str(Path.cwd()))
    except UsageError as exc:
        return AgentFacts(name, "", problem=exc.message)
    program = profile.command[0]
    search = dict(profile.env).get("PATH")
    return AgentFacts(name, profile.dialect, program, shutil.which(program, path=search))


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


def _why_not_writable(path: Path) -> str | None:
    """What keeps us from writing there, or from making it; None when nothing does."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return f"{existing} is no directory"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"no right to write in {existing}"
