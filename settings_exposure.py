"""Finds files that an agent's own tools could replace although they run as code or say what it may do.

A worker refuses its own hooks in its working directory. This check runs before there is a worker, and covers the files
that a worker does not know: the settings, the gateway's hooks, the hooks of other agents. It resolves links, and reads
no file.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from errors import UsageError
from profiles import KNOWN_TOOLS, AgentSettings
from router.workspaces import find_workspace
from settings_problems import Problem
from settings_tables import Settings
from wire.ownership import places_of

__all__ = ["exposure_problems"]

_FILE_TOOLS = ("write", "edit")


def exposure_problems(settings: Settings, file: Path | None) -> list[Problem]:
    """``file``: the settings file, where there is one. Every path in the settings must be absolute."""
    named = {"the settings": str(file)} if file is not None else {}
    if settings.gateway.hooks:
        named["gateway.hooks"] = settings.gateway.hooks
    for name in settings.agents:
        named |= {f"agents.{name}.hooks": path for path in settings.agents[name].hooks}
    return [
        problem
        for name in settings.agent_names()
        for problem in _of_agent(settings, name, settings.agents.get(name, AgentSettings()), named)
    ]


def _of_agent(settings: Settings, name: str, agent: AgentSettings, named: dict[str, str]) -> Iterator[Problem]:
    free = _free_tools(agent)
    writers = [tool for tool in _FILE_TOOLS if tool in free]
    is_held = "exec" not in free or bool(agent.hooks)
    own = {f"agents.{name}.hooks": path for path in agent.hooks} if free else {}
    at_stake = named if writers and is_held else own
    if agent.dialect != "native" or not at_stake:
        return
    if agent.allow_outside and writers and is_held:
        yield Problem(
            ("agents", name, "allow_outside"),
            f"lets {' and '.join(writers)} replace the settings and hooks that hold this agent; name them in "
            "require_approval, or leave it out",
        )
    for workspace in sorted(_workspaces(settings, name)):
        for what, path in at_stake.items():
            if any(place.is_relative_to(workspace) for place in places_of(path)):
                yield Problem(
                    ("agents", name, "hooks" if what == f"agents.{name}.hooks" else "workspace"),
                    f"{what} ({path}) lies in the workspace {workspace}, where this agent's tools could replace it; "
                    "keep it elsewhere, or choose another workspace",
                )


def _free_tools(agent: AgentSettings) -> frozenset[str]:
    """Tools with effects on files that run without approval."""
    if agent.permission_mode != "auto":
        return frozenset()
    there_are = KNOWN_TOOLS["native"] if agent.tools is None else agent.tools
    return frozenset({*_FILE_TOOLS, "exec"} & {*there_are} - {*agent.deny_tools, *agent.require_approval})


def _workspaces(settings: Settings, agent: str) -> set[str]:
    found = set()
    for role in settings.role_names():
        try:
            path = find_workspace(settings.router, settings, agent, role, Path(settings.data_dir)).path
        except UsageError:  # told where the workspace is wanted
            continue
        found.add(os.path.realpath(path))
    return found
