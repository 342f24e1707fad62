"""What is known of each agent definition: program, make, login, and what is missing, with the line to type."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from profiles import AgentSettings, ProfilesSettings
from profiles.catalogue import MAKES, AgentMake, make_of
from rpc.acp.words import WANTS_LOGIN
from settings.config_file import redacted_arguments

if TYPE_CHECKING:
    from settings.schema import Settings

_PREFIX = re.compile(r"\Aworker \S+ did not start: ")
Login = Literal["ok", "wanted", "found", "none", "unknown", "-"]
"""``ok``: a worker has got through; ``wanted``: one was refused without a login; ``found``: a key or a login's file is
there; ``none``: neither is; ``-``: the pool cannot know what it needs."""


class MissingPart(msgspec.Struct, frozen=True):
    """What is missing, and what to type about it; ``alternative``: what else would do."""

    what: str
    line: str
    alternative: str = ""


class AgentListing(msgspec.Struct, frozen=True, kw_only=True):
    """One agent definition. Empty texts: not known before a worker of it has been ready."""

    name: str
    make: str
    dialect: str
    command: list[str]
    """Secrets hidden."""
    path: str | None
    """Where the program is."""
    mode: str | None
    agent: str
    version: str
    capabilities: list[str]
    resume: str
    """Whether it goes on with a conversation of an earlier process: yes, no, unknown. No: it is fed the end of it."""
    login: Login
    missing: list[MissingPart]


def inherited_variables(settings: "Settings") -> dict[str, str]:
    """The variables that workers get of this environment."""
    return {name: os.environ[name] for name in settings.rpc.env_passthrough if name in os.environ}


def list_agents(
    settings: ProfilesSettings, inherited: Mapping[str, str], reported: Sequence[Mapping[str, Any]] | None
) -> list[AgentListing]:
    """All definitions, with what a running supervisor knows of them (``reported``; None: none answers).

    ``inherited``: the variables that workers get of the environment.
    """
    known = None if reported is None else {agent["name"]: agent for agent in reported}
    return [_listing(settings, name, inherited, known) for name in settings.agent_names()]


def _listing(
    settings: ProfilesSettings,
    name: str,
    inherited: Mapping[str, str],
    known: Mapping[str, Mapping[str, Any]] | None,
) -> AgentListing:
    definition = settings.agents.get(name, AgentSettings())
    command = definition.command or list(definition.traits.default_command)
    env = {**inherited, **definition.env}
    running = None if known is None else known.get(name)
    is_other = running is not None and running.get("program") not in (None, settings.program_mark(name))
    seen = {} if running is None or is_other else running.get("seen") or {}
    make = make_of(definition.dialect, command, seen.get("program", ""))
    path = shutil.which(command[0], path=env.get("PATH")) if command else None
    login = "-" if definition.traits.bundled_flags else find_login(make, env, seen)
    missing = find_missing(name, command, path, make, login, problem=seen.get("problem") or "")
    if is_other:
        missing.append(MissingPart("differs from the running one", "pool reload"))
    if known is not None and running is None:
        missing.append(MissingPart("the running supervisor does not know it yet", "pool reload"))
    return AgentListing(
        name=name,
        make=make.name if make else "bundled" if definition.traits.bundled_flags and not definition.command else "-",
        dialect=definition.dialect,
        command=redacted_arguments(command),
        path=path,
        mode=definition.mode,
        agent=seen.get("program", ""),
        version=seen.get("version", ""),
        capabilities=list(seen.get("capabilities", ())),
        resume=_resume(definition, seen),
        login=login,
        missing=missing,
    )


def find_login(make: AgentMake | None, env: Mapping[str, str], seen: Mapping[str, Any]) -> Login:
    """Whether the agent is logged in, as far as its workers, its environment and the home directory show."""
    if WANTS_LOGIN in (seen.get("problem") or ""):
        return "wanted"
    if seen.get("is_ready"):
        return "ok"
    if make is None:
        return "unknown"
    home = Path(env.get("HOME") or "/")
    has_key = any(env.get(name) for name in make.key_variables)
    return "found" if has_key or any((home / name).exists() for name in make.login_files) else "none"


def find_missing(
    name: str, command: Sequence[str], path: str | None, make: AgentMake | None, login: Login, *, problem: str = ""
) -> list[MissingPart]:
    """What keeps a definition from working."""
    found = []
    if path is None:
        program = command[0] if command else "its program"
        is_usual = make is not None and program == make.command[0]
        line = make.install if make and is_usual else f"pool config set agents.{name}.command '[\"/path/to/it\"]'"
        found.append(MissingPart(f"{program} is not found", line))
    problem = _PREFIX.sub("", problem)
    if login in ("none", "wanted") and make is not None:
        what = "it wants a login" if login == "wanted" else "no login is found"
        found.append(MissingPart(what, make.login, key_line(name, make)))
    elif problem:
        found.append(MissingPart(f"its last start failed: {problem}", "pool doctor"))
    return found


def key_line(name: str, make: AgentMake) -> str:
    """How the key is given that stands for a login; empty where there is none."""
    return f"pool config set agents.{name}.env.{make.key_variables[0]} KEY" if make.key_variables else ""


def _resume(definition: AgentSettings, seen: Mapping[str, Any]) -> str:
    if not definition.traits.keeps_journal:  # it reads its own transcripts
        return "yes"
    return "no" if seen.get("forgets") else str(seen.get("resumes", "unknown"))


def definition_of(make: str) -> dict[str, Any]:
    """What a definition of this make says in the settings file."""
    found = MAKES[make]
    mode = {} if found.mode is None else {"mode": found.mode}
    return {"dialect": found.dialect, "command": list(found.command), **mode}
