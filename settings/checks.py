"""Checks of settings against each other, and against this machine. Their types check each value by itself.

Both ``pool config check`` and the supervisor (at start and reload) run ``machine_problems``; client commands do not.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.settings import agent_problem, cluster_problems, local_limit
from doors.http.settings import is_loopback
from doors.http.tokens import TOKEN_VARIABLE, find_token_source, http_problems
from errors import UsageError
from heartbeat.delivery.settings import signing_key
from heartbeat.delivery.targets import target_problem
from pool.settings import check_memory, contradictions
from profiles import AgentSettings, build_profile
from router.settings import router_problems
from router.workspaces import find_workspace, workspace_problem
from settings.problems import KeyPath, Problem, suggestion
from settings.schema import Settings
from wire.addresses import parse_bind
from wire.files import open_regular, real_paths
from wire.tokens import read_token, token_problem


def check_settings(settings: Settings) -> list[Problem]:
    """Every setting that contradicts another, under its path in the file. Pure."""
    return [
        *(Problem(("pool", name), text) for name, text in contradictions(settings.pool)),
        *_prewarm_problems(settings),
        *_agent_problems(settings),
        *(Problem(("cluster", *path), text) for path, text in cluster_problems(settings.cluster)),
        *_group_problems(settings),
        *_keeping_problems(settings),
        *_target_problems(settings),
        *_cron_problems(settings),
        *(Problem(path, text) for path, text in router_problems(settings.router, settings)),
        *(Problem(path, text) for path, text in http_problems(settings.http)),
    ]


def _prewarm_problems(settings: Settings) -> Iterator[Problem]:
    for index, entry in enumerate(settings.pool.prewarm):
        place = ("pool", "prewarm", index)
        yield from _unknown_name("agent", entry.agent, settings.agent_names(), (*place, "agent"))
        yield from _unknown_name("role", entry.role, settings.role_names(), (*place, "role"))
        if settings.has_workspace_per_session(entry.agent):
            text = f"has a workspace per session (agents.{entry.agent}.workspace_per): no worker can be started before"
            yield Problem((*place, "agent"), f"{entry.agent} {text} its session is known")
    total = sum(entry.count for entry in settings.pool.prewarm)
    if total > settings.pool.max:
        yield Problem(("pool", "prewarm"), f"asks for {total} workers, more than pool.max = {settings.pool.max}")


def _agent_problems(settings: Settings) -> Iterator[Problem]:
    """Agents whose workers could not start."""
    for name in settings.agents:
        try:
            build_profile(settings, name, "default", "/")
        except UsageError as exc:
            setting = exc.details.get("setting")
            if setting is None:
                yield Problem(("agents", name), exc.message)
            else:
                yield Problem(("agents", name, setting), exc.message.removeprefix(f"{setting}: "))


def _group_problems(settings: Settings) -> Iterator[Problem]:
    """Agents whose workers could run on no machine."""
    for name in {settings.router.default_agent: None, **settings.agents}:
        agent = settings.agents.get(name, AgentSettings())
        found = agent_problem(settings.cluster, agent.group, agent.command, suggestion)
        if found is not None:
            yield Problem(("agents", name, found[0]), found[1])
    shared = settings.cluster.shared_dir
    if shared and settings.data_dir and not Path(settings.data_dir).is_relative_to(shared):
        yield Problem(("cluster", "shared_dir"), f"is {shared}, which data_dir ({settings.data_dir}) is not in")


def _keeping_problems(settings: Settings) -> Iterator[Problem]:
    """Agents whose sessions would all be refused, because none may keep a worker."""
    for name, agent in settings.agents.items() if settings.pool.max == 1 else ():
        if agent.resume == "pin":
            text = 'has each session keep a worker, but the only one of pool.max = 1 is for all sessions; set "auto"'
            yield Problem(("agents", name, "resume"), f'is "pin": it {text}, or raise pool.max to 2 or more')


def _target_problems(settings: Settings) -> Iterator[Problem]:
    """Targets that no alert can reach."""
    targets = {name: own.target for name, own in settings.heartbeats.items() if own.target is not None}
    for name, target in {"defaults": settings.heartbeat.target, **targets}.items():
        problem = target_problem(target, settings.delivery.webhooks)
        if problem is not None:
            yield Problem(("agents", name, "heartbeat", "target"), problem)


def _cron_problems(settings: Settings) -> Iterator[Problem]:
    lane = settings.gateway.queue.lanes.get("cron")
    if lane is not None and lane < settings.cron.max_running:
        yield Problem(
            ("cron", "max_running"),
            f"is {settings.cron.max_running}, more than gateway.queue.lanes.cron = {lane}; raise that too",
        )


def _unknown_name(what: str, name: str, known: list[str], path: KeyPath) -> Iterator[Problem]:
    if name not in known:
        yield Problem(path, f"there is no {what} {name!r}{suggestion(name, known)}")


def machine_problems(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    """Every problem, under its path in the file. Reads files and creates none."""
    here = local_limit(settings.cluster, settings.pool.max)
    setting = ("pool", "max") if here == settings.pool.max else ("cluster", "local_slots")
    yield from _check_problem(setting, check_memory, settings.pool, here=here)
    if settings.cluster.token_file:
        yield from _check_problem(("cluster", "token_file"), read_token, Path(settings.cluster.token_file))
    for name, hook in settings.delivery.webhooks.items():
        yield from _check_problem(("delivery", "webhooks", name, "secret_env"), signing_key, name, hook, env)
    if settings.http.bind:
        yield from _token_problems(settings, env)
    for agent, role in _prewarmed(settings):
        yield from _workspace_problems(settings, agent, role)
    yield from _hook_problems(settings)


def _check_problem(path: KeyPath, check: Callable[..., Any], *args: Any, **more: Any) -> Iterator[Problem]:
    """The problem that ``check`` raises, without the name of the setting."""
    try:
        check(*args, **more)
    except UsageError as exc:
        yield Problem(path, exc.message.removeprefix(f"{path[0]}.{path[1]} = "))


def _token_problems(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    http = settings.http
    given = env.get(TOKEN_VARIABLE)
    if given and (problem := token_problem(given)):
        yield Problem(("http",), f"${TOKEN_VARIABLE} {problem}")
    place = find_token_source(http, env, Path(settings.data_dir))
    if place.file is not None and not place.is_made:
        yield from _check_problem(("http", "token_file"), read_token, place.file)
    if place.is_made and not is_loopback(parse_bind(http.bind)[0]):
        text = "other machines can reach it: set http.token_file (or http.token) to a token of your choice first, or "
        yield Problem(("http", "bind"), f"is {http.bind}, and {text}bind 127.0.0.1")
    for name, each in http.tokens.items():
        if each.token_file:
            yield from _check_problem(("http", "tokens", name, "token_file"), read_token, Path(each.token_file))


def _hook_problems(settings: Settings) -> Iterator[Problem]:
    """Files of hooks that are missing or no Python; none is run. A program of the user's has hooks of its own."""
    if settings.gateway.hooks:
        yield from _code_problems(("gateway", "hooks"), settings.gateway.hooks)
    for name, agent in settings.agents.items():
        for index, file in enumerate(agent.hooks if not agent.command else ()):
            yield from _code_problems(("agents", name, "hooks", index), file)


def _code_problems(path: KeyPath, file: str) -> Iterator[Problem]:
    try:
        with os.fdopen(open_regular(Path(file), os.O_RDONLY), "rb") as opened:
            compile(opened.read(), file, "exec", dont_inherit=True)
    except OSError as exc:
        yield Problem(path, f"cannot read {file}: {exc.strerror}")
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None) or 1
        yield Problem(path, f"cannot load {file}:{line}: {getattr(exc, 'msg', None) or exc}")


def _prewarmed(settings: Settings) -> list[tuple[str, str]]:
    """The agents and roles whose workers the supervisor starts without a request."""
    default = [(settings.router.default_agent, "default")] if settings.pool.min else []
    return [(warm.agent, warm.role) for warm in settings.pool.prewarm] or default


def _workspace_problems(settings: Settings, agent: str, role: str) -> Iterator[Problem]:
    try:
        found = find_workspace(settings.router, settings, agent, role, Path(settings.data_dir))
    except UsageError as exc:
        yield Problem(("agents", agent), exc.message)
        return
    problem = None if settings.has_remote_workspace(agent) else workspace_problem(found)
    if problem is not None:
        yield Problem(tuple(found.source.split(".")), f"the workspace {found.path} {problem}")


_FILE_TOOLS = ("write", "edit")


def exposure_problems(settings: Settings, file: Path | None) -> list[Problem]:
    """Code and settings that an agent's own tools could replace: files that no worker knows. Reads no file.

    ``file``: the settings file, where there is one. Every path in the settings must be absolute.
    """
    named = {"the settings": str(file)} if file is not None else {}
    if settings.gateway.hooks:
        named["gateway.hooks"] = settings.gateway.hooks
    for name in settings.agents:
        named |= {f"agents.{name}.hooks": path for path in settings.agents[name].hooks}
    return [
        problem
        for name in settings.agent_names()
        for problem in _agent_exposure(settings, name, settings.agents.get(name, AgentSettings()), named)
    ]


def _agent_exposure(settings: Settings, name: str, agent: AgentSettings, named: dict[str, str]) -> Iterator[Problem]:
    free = _unapproved_tools(agent)
    writers = [tool for tool in _FILE_TOOLS if tool in free]
    is_held = "exec" not in free or bool(agent.hooks)
    own = {f"agents.{name}.hooks": path for path in agent.hooks} if free else {}
    at_stake = named if writers and is_held else own
    if not agent.traits.bundled_flags or not at_stake:
        return
    if agent.allow_outside and writers and is_held:
        yield Problem(
            ("agents", name, "allow_outside"),
            f"lets {' and '.join(writers)} replace the settings and hooks that hold this agent; name them in "
            "require_approval, or leave it out",
        )
    for workspace in sorted(_workspaces(settings, name)):
        for what, path in at_stake.items():
            if any(place.is_relative_to(workspace) for place in real_paths(path)):
                yield Problem(
                    ("agents", name, "hooks" if what == f"agents.{name}.hooks" else "workspace"),
                    f"{what} ({path}) lies in the workspace {workspace}, where this agent's tools could replace it; "
                    "keep it elsewhere, or choose another workspace",
                )


def _unapproved_tools(agent: AgentSettings) -> frozenset[str]:
    """Tools with effects on files that run without approval."""
    if agent.permissions != "auto":
        return frozenset()
    there_are = agent.traits.known_tools if agent.tools is None else agent.tools
    return frozenset({*_FILE_TOOLS, "exec"} & {*there_are} - {*agent.deny_tools, *agent.require_approval})


def _workspaces(settings: Settings, agent: str) -> set[str]:
    found = set()
    for role in settings.role_names():
        try:
            path = find_workspace(settings.router, settings, agent, role, Path(settings.data_dir)).path
        except UsageError:  # reported where the workspace is used
            continue
        found.add(os.path.realpath(path))
    return found
