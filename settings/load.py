"""Loading the settings file: parsing, prompt files, checks, and errors with line numbers."""

import os
import re
import time
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from cluster.settings import ClusterSettings, slots_problem
from doors.http.settings import with_token_files
from profiles import AgentSettings, RoleSettings
from settings.checks import check_settings, exposure_problems, machine_problems
from settings.location import absolute_data_dir, read_settings_file, resolve_path
from settings.problems import KeyPath, Problem, SettingsError, lines_of_keys, suggestion, type_problems
from settings.schema import DOTTED_TABLES, Settings, file_key_path, struct_shape
from wire.files import open_regular
from wire.units import decode_unit

_MAX_PROMPT_BYTES = 100_000
"""A prompt is one argument of the worker's program; Linux limits these to 128 KiB."""
_PROMPT_KEYS = ("system_prompt", "append_system_prompt")

Table = TypeVar("Table", AgentSettings, RoleSettings)


def with_prompt_files(settings: Settings, place: Callable[[str], str]) -> tuple[Settings, list[Problem]]:
    """The settings with the files' texts, and a problem for each file that cannot be read.

    ``@path`` is a file, ``@@text`` the text ``@text``; anything else is literal text. ``place`` makes a path absolute.
    """
    problems: list[Problem] = []

    def read(tables: Mapping[str, Table], kind: str) -> dict[str, Table]:
        return {name: _with_texts(table, (kind, name), place, problems) for name, table in tables.items()}

    changed = {"agents": read(settings.agents, "agents"), "roles": read(settings.roles, "roles")}
    return msgspec.structs.replace(settings, **changed), problems


def _with_texts(table: Table, path: tuple[str, str], place: Callable[[str], str], problems: list[Problem]) -> Table:
    found = {}
    for key in _PROMPT_KEYS:
        value = getattr(table, key, None)
        if value is None or not value.startswith("@"):
            continue
        try:
            found[key] = value[1:] if value.startswith("@@") else _read_prompt(Path(place(value[1:])))
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            problems.append(Problem((*path, key), f"cannot read {place(value[1:])}: {reason}; @@ begins a text with @"))
    return msgspec.structs.replace(table, **found) if found else table


def _read_prompt(path: Path) -> str:
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        content = file.read(_MAX_PROMPT_BYTES + 1)
    if len(content) > _MAX_PROMPT_BYTES:
        raise ValueError(f"it is longer than {_MAX_PROMPT_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8 text") from exc


class Overrides(TypedDict, total=False):
    """What comes beside the file: values of the command line, which win, and the machine to check against."""

    data_dir: str | None
    min_workers: int | None
    max_workers: int | None
    machine: Mapping[str, str] | None
    """The environment of a supervisor that is to run here; what it or the machine lacks is a problem too."""


def load_settings(path: Path | None, **overrides: Unpack[Overrides]) -> Settings:
    """Read and check the file (None: the embedded defaults), with the overrides put over it.

    Raises SettingsError that names every key at fault, with its line and, for unknown ones, the likely intention.
    """
    return parse_settings("" if path is None else read_settings_file(path), path, **overrides)


def parse_settings(text: str, path: Path | None, **overrides: Unpack[Overrides]) -> Settings:
    """``load_settings`` for the text of a file that stands (or is to stand) at ``path``."""
    flags = {"min": overrides.get("min_workers"), "max": overrides.get("max_workers")}
    limits = {key: value for key, value in flags.items() if value is not None}
    given = {("pool", name) for name in limits}
    table = parse_toml(text, path)
    if limits and isinstance(table.setdefault("pool", {}), dict):
        table["pool"] |= limits
    problems = [
        *(Problem((name,), f"is one key as quoted; write [{name}]") for name in DOTTED_TABLES if name in table),
        *(Problem(file_key_path(found.path), found.text) for found in type_problems(struct_shape(table), Settings)),
    ]
    if problems:
        raise settings_error(problems, text, path, given)
    settings = msgspec.convert(struct_shape(table), Settings, dec_hook=decode_unit)
    settings = _with_absolute_paths(settings, path, overrides.get("data_dir"))
    settings, unread = with_prompt_files(settings, lambda name: resolve_path(path, name))
    problems = [
        *check_settings(settings),
        *unread,
        *exposure_problems(settings, None if path is None else path.absolute()),
        *_job_problems(settings),
        *_hours_problems(settings),
    ]
    if ("pool", "max") not in given and (wrong := slots_problem(settings.cluster, settings.pool.max)):
        problems.append(Problem(("pool", "max"), wrong))
    if (hooks := settings.gateway.hooks) and not Path(hooks).is_file():
        problems.append(Problem(("gateway", "hooks"), f"there is no file {hooks}"))
    machine = overrides.get("machine")
    if not problems and machine is not None:
        problems = list(machine_problems(settings, machine))
    if problems:
        raise settings_error(problems, text, path, given)
    return settings


def parse_toml(text: str, path: Path | None) -> dict[str, Any]:
    """The text as TOML. Raises SettingsError that names the line where it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(exc))
        line = int(found[1]) if found else max(1, len(text.splitlines()))
        column = f" at column {found[2]}" if found else " at the end of the file"
        reason = re.sub(r" \(at .*\)$", "", str(exc))
        raise SettingsError(f"{path}:{line}: this is not TOML: {reason[:1].lower()}{reason[1:]}{column}") from exc


# --- paths and the command line ---------------------------------------------------------------------------------------


def _with_absolute_paths(settings: Settings, path: Path | None, data_dir: str | None) -> Settings:
    gateway = settings.gateway
    if gateway.hooks:
        gateway = msgspec.structs.replace(gateway, hooks=resolve_path(path, gateway.hooks))
    return msgspec.structs.replace(
        settings,
        data_dir=absolute_data_dir(data_dir, settings.data_dir, path),
        gateway=gateway,
        agents={
            name: msgspec.structs.replace(agent, hooks=[resolve_path(path, file) for file in agent.hooks])
            for name, agent in settings.agents.items()
        },
        http=with_token_files(settings.http, lambda name: resolve_path(path, name)),
        cluster=_with_paths(settings.cluster, path),
    )


def _with_paths(cluster: ClusterSettings, path: Path | None) -> ClusterSettings:
    names = {name: getattr(cluster, name) for name in ("token_file", "shared_dir")}
    return msgspec.structs.replace(cluster, **{key: resolve_path(path, name) for key, name in names.items() if name})


def _hours_problems(settings: Settings) -> list[Problem]:
    """Active hours that are no times of day, or of no time zone of this machine."""
    own = {name: heartbeat.active_hours for name, heartbeat in settings.heartbeats.items()}
    given = {name: hours for name, hours in {"defaults": settings.heartbeat.active_hours, **own}.items() if hours}
    if not given:
        return []
    from heartbeat.schedule import hours_problem  # noqa: PLC0415  # what most commands need not wait for

    found = ((name, hours_problem(hours.start, hours.end, hours.tz)) for name, hours in given.items())
    return [Problem(("agents", name, "heartbeat", "active_hours"), text) for name, text in found if text]


def _job_problems(settings: Settings) -> list[Problem]:
    """Scheduled jobs that would never be due, or name what there is not; by this machine's clock and time zones."""
    if not settings.cron.jobs:
        return []
    from heartbeat.cron.jobs import NameValidators, cron_problems  # noqa: PLC0415  # what most commands need not wait for
    from heartbeat.cron.schedule import machine_zone  # noqa: PLC0415  # the same
    from heartbeat.delivery.targets import target_problem  # noqa: PLC0415  # the same

    known = dict.fromkeys(settings.agent_names())

    def agent_problem(agent: str) -> str | None:
        return None if agent in known else f"agent: there is no agent {agent!r}{suggestion(agent, known)}"

    names = NameValidators(
        agent_problem,
        lambda target: target_problem(target, settings.delivery.webhooks),
        lambda: settings.router.default_agent,
    )
    problems = cron_problems(settings.cron, now=time.time(), local=machine_zone(), names=names)
    return [Problem(path, text) for path, text in problems]


# --- what a refusal looks like ----------------------------------------------------------------------------------------


def settings_error(
    problems: list[Problem], text: str, path: Path | None, given: Collection[KeyPath] = frozenset()
) -> SettingsError:
    """Each problem with its line in the ``text`` of the file at ``path``.

    ``given``: keys whose values are the command line's, whatever the file says.
    """
    lines = lines_of_keys(text)

    def place(key: KeyPath) -> str:
        return f"--{key[-1]}: " if key in given else _location(key, lines, path)

    return SettingsError("\n".join(f"{place(problem.path)}{problem}" for problem in problems), problems)


def _location(key: KeyPath, lines: dict[KeyPath, int], path: Path | None) -> str:
    """The line of the key; else of the first thing in it, a table that only its inner ones name; else around it."""
    inside = [line for other, line in lines.items() if other[: len(key)] == key]
    if key and inside:
        return f"{path}:{min(inside)}: "
    if key:
        return _location(key[:-1], lines, path)
    return f"{path}: " if path and lines else ""
