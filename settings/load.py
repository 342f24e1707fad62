"""Loading the settings file: search, parsing, prompt files, checks, and errors with line numbers."""

import os
import re
import time
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from doors.http.settings import with_token_files
from profiles import AgentSettings, RoleSettings
from settings.checks import check_settings, exposure_problems, machine_problems
from settings.problems import KeyPath, Problem, SettingsError, lines_of_keys, suggestion, type_problems
from settings.schema import DOTTED_TABLES, Settings, file_key_path, struct_shape
from wire.files import foreign_write_access, open_regular
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


def find_settings_file(explicit: str | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to read: ``--config``, ``$POOL_CONFIG``, ``./pool.toml``, the user's ``pool/pool.toml``, else None.

    A file that was named is returned whether it exists or not. Raises SettingsError for ``./pool.toml`` where another
    user than root owns it or may write it.
    """
    named = explicit or env.get("POOL_CONFIG")
    if named:
        return cwd / Path(named).expanduser()
    config_home = env.get("XDG_CONFIG_HOME") or "~/.config"
    here, users = cwd / "pool.toml", Path(config_home).expanduser() / "pool" / "pool.toml"
    if not here.is_file():
        return users if users.is_file() else None
    problem = foreign_write_access(here)
    if problem is not None:  # settings name programs to run
        raise SettingsError(
            f"{here} {problem}, who can have any program run with it: it is not used without being named; "
            f"--config {here} says that it is wanted"
        )
    return here


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
    settings, unread = with_prompt_files(settings, lambda name: _resolve_path(path, name))
    problems = [
        *check_settings(settings),
        *unread,
        *exposure_problems(settings, None if path is None else path.absolute()),
        *_job_problems(settings),
        *_hours_problems(settings),
    ]
    if (hooks := settings.gateway.hooks) and not Path(hooks).is_file():
        problems.append(Problem(("gateway", "hooks"), f"there is no file {hooks}"))
    machine = overrides.get("machine")
    if not problems and machine is not None:
        problems = list(machine_problems(settings, machine))
    if problems:
        raise settings_error(problems, text, path, given)
    return settings


def read_settings_file(path: Path) -> str:
    """The text of the file. Raises SettingsError where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as exc:
        raise SettingsError(f"cannot read the settings file {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise SettingsError(f"{path}:{line}: the file is not UTF-8 text") from exc


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


def salvage_paths(path: Path | None) -> tuple[str, str]:
    """``data_dir`` (absolute) and ``socket`` of an invalid file, each empty where it cannot be read.

    By them a command finds the supervisor that was started before the file became invalid.
    """
    if path is None:
        return "", ""
    try:
        table = _readable_part(read_settings_file(path))
    except SettingsError:
        table = {}
    data_dir, socket = table.get("data_dir"), table.get("socket")
    where = _resolve_path(path, data_dir) if isinstance(data_dir, str) and data_dir else ""
    return where, socket if isinstance(socket, str) else ""


def _readable_part(text: str) -> dict[str, Any]:
    """The beginning of the file that is valid TOML, which has the keys outside all tables."""
    lines = text.splitlines()
    while lines:
        try:
            return tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError as exc:
            found = re.search(r"\(at line (\d+),", str(exc))
            lines = lines[: min(int(found[1]), len(lines)) - 1 if found else len(lines) - 1]
    return {}


# --- paths and the command line ---------------------------------------------------------------------------------------


def _with_absolute_paths(settings: Settings, path: Path | None, data_dir: str | None) -> Settings:
    gateway = settings.gateway
    if gateway.hooks:
        gateway = msgspec.structs.replace(gateway, hooks=_resolve_path(path, gateway.hooks))
    return msgspec.structs.replace(
        settings,
        data_dir=_absolute_data_dir(data_dir, settings.data_dir, path),
        gateway=gateway,
        agents={
            name: msgspec.structs.replace(agent, hooks=[_resolve_path(path, file) for file in agent.hooks])
            for name, agent in settings.agents.items()
        },
        http=with_token_files(settings.http, lambda name: _resolve_path(path, name)),
    )


def _absolute_data_dir(flag: str | None, configured: str, path: Path | None) -> str:
    if flag:
        return _resolve_path(None, flag)
    if configured and path is not None:
        return _resolve_path(path, configured)
    import platformdirs  # noqa: PLC0415  # 17 ms that a command with a data directory of its own need not pay

    return platformdirs.user_state_dir("pool", appauthor=False)


def _resolve_path(file: Path | None, name: str) -> str:
    """A path as the file (or, without one, the command line) means it, made absolute."""
    place = Path() if file is None else file.parent
    return os.path.abspath(place / Path(name).expanduser())  # noqa: PTH100  # also folds "..", which absolute() keeps


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
