"""The settings file: one TOML file composed of the rooms' own structs; found, read, refused with the line to mend."""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_args, get_origin

import msgspec

from errors import UsageError
from gateway.settings import GatewaySettings
from pool.settings import PoolSettings
from profiles.settings import ProfilesSettings
from rpc.settings import RpcSettings
from wire.units import decode_unit

__all__ = ["Problem", "Settings", "SettingsError", "check_settings", "find_settings_file", "load_settings"]

KeyPath = tuple[str | int, ...]


class Settings(ProfilesSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. ``[agents]``, ``[roles]`` and ``[skills]`` come from ``ProfilesSettings``.

    As ``load_settings`` returns it, ``data_dir`` is absolute; ``socket`` is empty when no file names one.
    """

    data_dir: str = ""
    """Where transcripts, logs and the lock live; empty = the user's state directory."""
    socket: str = ""
    """Path of the control socket; empty = in the runtime directory, else in ``data_dir``."""
    pool: PoolSettings = PoolSettings()
    rpc: RpcSettings = RpcSettings()
    gateway: GatewaySettings = GatewaySettings()


class SettingsError(UsageError):
    """The settings cannot be used; ``problems`` has all that is wrong with them, the message shows it line by line."""

    code: ClassVar[str] = "settings"

    def __init__(self, message: str, problems: "list[Problem] | None" = None) -> None:
        super().__init__(message)
        self.problems = problems or []


class Problem(NamedTuple):
    """What is wrong with one key: ``("pool", "max")``; list items are numbers."""

    path: KeyPath
    text: str

    def __str__(self) -> str:
        name = ""
        for part in self.path:
            name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
        return f"{name}: {self.text}" if name else self.text


# --- finding and loading --------------------------------------------------------------------------------------------


def find_settings_file(explicit: str | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to read: ``--config``, ``$POOL_CONFIG``, ``./pool.toml``, the user's ``pool/pool.toml``, else None.

    A file that was named is returned whether it exists or not.
    """
    named = explicit or env.get("POOL_CONFIG")
    if named:
        return cwd / Path(named).expanduser()
    config_home = env.get("XDG_CONFIG_HOME") or "~/.config"
    usual = (cwd / "pool.toml", Path(config_home).expanduser() / "pool" / "pool.toml")
    return next((path for path in usual if path.is_file()), None)


def load_settings(
    path: Path | None,
    *,
    data_dir: str | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
) -> Settings:
    """Read and check the file (None: the embedded defaults), with the command line's own values put over it.

    Raises SettingsError that names every key at fault, with its line and, for unknown ones, the likely intention.
    """
    text = "" if path is None else _read(path)
    table = _parse(text, path)
    problems = list(_type_problems(table, Settings, ()))
    if problems:
        raise _error(problems, text, path)
    settings = msgspec.convert(table, Settings, dec_hook=decode_unit)
    settings = _override(settings, path, data_dir=data_dir, min_workers=min_workers, max_workers=max_workers)
    problems = check_settings(settings)
    if problems:
        raise _error(problems, text, path)
    return settings


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise SettingsError(f"cannot read the settings file {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise SettingsError(f"{path}:{line}: the file is not UTF-8 text") from exc


def _parse(text: str, path: Path | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(exc))
        line = int(found[1]) if found else max(1, len(text.splitlines()))
        column = f" at column {found[2]}" if found else " at the end of the file"
        reason = re.sub(r" \(at .*\)$", "", str(exc))
        raise SettingsError(f"{path}:{line}: this is not TOML: {_uncapitalised(reason)}{column}") from exc


def _override(
    settings: Settings, path: Path | None, *, data_dir: str | None, min_workers: int | None, max_workers: int | None
) -> Settings:
    limits = {name: value for name, value in (("min", min_workers), ("max", max_workers)) if value is not None}
    return msgspec.structs.replace(
        settings,
        data_dir=_absolute_data_dir(data_dir, settings.data_dir, path),
        pool=msgspec.structs.replace(settings.pool, **limits),
    )


def _absolute_data_dir(flag: str | None, configured: str, path: Path | None) -> str:
    if flag:
        return os.path.abspath(Path(flag).expanduser())  # noqa: PTH100  # also folds "..", which absolute() keeps
    if configured and path is not None:
        return os.path.abspath(path.parent / Path(configured).expanduser())  # noqa: PTH100  # the same
    import platformdirs  # noqa: PLC0415  # 17 ms that a command with a data directory of its own need not pay

    return platformdirs.user_state_dir("pool", appauthor=False)


def _error(problems: list[Problem], text: str, path: Path | None) -> SettingsError:
    lines = _lines_of_keys(text)
    shown = [f"{_place(problem.path, lines, path)}{problem}" for problem in problems]
    return SettingsError("\n".join(shown), problems)


def _place(key: KeyPath, lines: dict[KeyPath, int], path: Path | None) -> str:
    while key and key not in lines:
        key = key[:-1]
    return f"{path}:{lines[key]}: " if key else f"{path}: " if path and lines else ""


# --- where a key stands ---------------------------------------------------------------------------------------------


def _lines_of_keys(text: str) -> dict[KeyPath, int]:
    """The line of every key of a TOML text that parses; keys inside one statement share its first line.

    The parser keeps no positions, so each statement (the shortest run of lines that parses by itself) is read alone.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    arrays: dict[KeyPath, int] = {}
    for line, statement in _statements(text):
        content = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _table_path(content, arrays)
            found.setdefault(table, line)
        else:
            found.update({table + path: line for path in _paths(content)})
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    start, pending = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        pending += line
        try:
            content = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        if content:
            yield start, pending
        start, pending = number + 1, ""


def _table_path(header: Any, arrays: dict[KeyPath, int]) -> KeyPath:
    """The path a header line opens: ``[[a.b]]`` for the second time is ``("a", "b", 1)``."""
    path: KeyPath = ()
    while header:
        if isinstance(header, list):
            arrays[path] = arrays.get(path, -1) + 1
            return (*path, arrays[path])
        (key, header), *_ = header.items()
        path = (*path, key)
        if path in arrays and isinstance(header, dict):
            path = (*path, arrays[path])
    return path


def _paths(content: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from _paths(value, (*path, key))


# --- what is wrong with a value -------------------------------------------------------------------------------------


def _type_problems(value: Any, kind: Any, path: KeyPath) -> Iterator[Problem]:
    """Every unknown key and every value of the wrong type, each under its own path."""
    inner = list(_inner_problems(value, kind, path))
    yield from inner
    if not inner:
        try:
            msgspec.convert(value, kind, dec_hook=decode_unit)
        except msgspec.ValidationError as exc:
            yield _narrow(value, kind, path) or _problem(exc, path)


def _inner_problems(value: Any, kind: Any, path: KeyPath) -> Iterator[Problem]:
    origin = get_origin(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for key, item in value.items():
            if key in types:
                yield from _type_problems(item, types[key], (*path, key))
            else:
                yield Problem((*path, key), f"there is no such setting{_suggestion(key, types)}")
    elif isinstance(value, dict) and origin is dict:
        for key, item in value.items():
            yield from _type_problems(item, get_args(kind)[1], (*path, key))
    elif isinstance(value, list) and origin is list:
        for index, item in enumerate(value):
            yield from _type_problems(item, get_args(kind)[0], (*path, index))


def _narrow(value: Any, kind: Any, path: KeyPath) -> Problem | None:
    """Blame one entry of a table for what a struct's own check says about the whole."""
    for place, part in _parts(value):
        try:
            msgspec.convert(part, kind, dec_hook=decode_unit)
        except msgspec.ValidationError as exc:
            return _problem(exc, path + place)
    return None


def _parts(value: Any) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """A table cut into tables of one entry each: one key, or one key of one inner table."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict):
            yield from (((key, inner), {key: {inner: part}}) for inner, part in item.items())
        else:
            yield (key,), {key: item}


def _problem(exc: msgspec.ValidationError, path: KeyPath) -> Problem:
    text = re.sub(r" - at `[^`]*`$", "", str(exc)).replace("`", "")
    return Problem(path, _uncapitalised(text))


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _suggestion(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; there are: {', '.join(sorted(known))}"


# --- what is wrong between values -----------------------------------------------------------------------------------

_AT_LEAST: dict[KeyPath, int] = {
    ("pool", "min"): 0,
    ("pool", "max"): 1,
    ("pool", "max_per_profile"): 0,
    ("pool", "max_per_agent"): 0,
    ("pool", "reserve"): 0,
    ("pool", "waiting_capacity"): 0,
    ("pool", "spawn_burst"): 1,
    ("pool", "ping_failures"): 1,
    ("pool", "max_turns"): 0,
    ("pool", "breaker_failures"): 1,
    ("rpc", "max_line_bytes"): 1024,
    ("rpc", "max_contaminated_lines"): 1,
    ("rpc", "send_queue_bytes"): 1024,
    ("rpc", "subscriber_events"): 1,
    ("rpc", "log_bytes"): 1024,
    ("rpc", "log_workers"): 1,
    ("gateway", "session_queue"): 0,
    ("gateway", "pending_runs"): 1,
}
_MORE_THAN_ZERO: list[KeyPath] = [
    *(("pool", name) for name in ("waiting_timeout", "age_step", "spawn_rate", "start_timeout", "reset_timeout")),
    *(("pool", name) for name in ("ping_interval_idle", "ping_interval_busy", "ping_timeout", "turn_stall")),
    *(("pool", name) for name in ("backoff_min", "backoff_max", "breaker_window", "breaker_half_open")),
    ("pool", "maintenance_interval"),
    ("rpc", "request_timeout"),
    ("rpc", "ui_timeout"),
]


def check_settings(settings: Settings) -> list[Problem]:
    """What the values say that cannot be meant: each by itself, and against the others. Pure."""
    return [*_single_problems(settings), *_pool_problems(settings.pool), *_prewarm_problems(settings)]


def _single_problems(settings: Settings) -> Iterator[Problem]:
    for (room, name), least in _AT_LEAST.items():
        value = getattr(getattr(settings, str(room)), str(name))
        if value < least:
            yield Problem((room, name), f"must be {least} or more, not {value}")
    for room, name in _MORE_THAN_ZERO:
        value = getattr(getattr(settings, str(room)), str(name))
        if not (value > 0 and math.isfinite(value)):
            yield Problem((room, name), f"must be more than 0, not {value:g}")


def _pool_problems(pool: PoolSettings) -> Iterator[Problem]:
    if pool.min > pool.max:
        yield Problem(("pool", "min"), f"is {pool.min}, more than pool.max = {pool.max}")
    if pool.reserve >= max(pool.max, 1):
        yield Problem(
            ("pool", "reserve"),
            f"is {pool.reserve}, but pool.max = {pool.max} must leave a worker for ordinary requests",
        )
    if pool.backoff_min > pool.backoff_max:
        yield Problem(
            ("pool", "backoff_min"), f"is {pool.backoff_min}, more than pool.backoff_max = {pool.backoff_max}"
        )


def _prewarm_problems(settings: Settings) -> Iterator[Problem]:
    agents, roles = settings.agent_names(), settings.role_names()
    for index, entry in enumerate(settings.pool.prewarm):
        place = ("pool", "prewarm", index)
        if entry.agent not in agents:
            yield Problem((*place, "agent"), f"there is no agent {entry.agent!r}; there are: {', '.join(agents)}")
        if entry.role not in roles:
            yield Problem((*place, "role"), f"there is no role {entry.role!r}; there are: {', '.join(roles)}")
        if entry.count < 0:
            yield Problem((*place, "count"), f"must be 0 or more, not {entry.count}")
    total = sum(entry.count for entry in settings.pool.prewarm)
    if total > max(settings.pool.max, 0):
        yield Problem(("pool", "prewarm"), f"asks for {total} workers, more than pool.max = {settings.pool.max}")
