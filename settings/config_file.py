"""The operations on a settings file: write a first one, check it, show it, set one key, add or delete an agent."""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomli_w

from errors import UsageError
from profiles.settings import agent_name_problem
from settings.edit import EditResult, edit_text, parse_key, remove_text, value_candidates
from settings.load import parse_settings, parse_toml, settings_error
from settings.location import read_settings_file
from settings.problems import Problem, SettingsError
from settings.schema import Settings, as_table, file_shape
from settings.template import humanize, inline_key, inline_value, render_template
from wire.files import replace_file
from wire.redaction import HIDDEN, is_secret_name

_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")
_PATH_OF_URL = re.compile(r"(?<=[^/:])[/?].+\Z", re.DOTALL)
_OWNER_ONLY = 0o600


class ConfigChange(NamedTuple):
    """What ``set_config`` did."""

    file: Path
    key: str
    """As TOML writes it."""
    value: str
    """As TOML writes it; a secret is not shown."""
    backup: Path | None
    """The file as it was, kept because its comments could not be; None = everything else stayed as it was."""


class AgentAddition(NamedTuple):
    """What ``add_agent`` did."""

    file: Path
    name: str
    written: dict[str, Any]
    text: str
    """The definition as TOML writes it."""
    backup: Path | None
    """As of ``ConfigChange``."""


def init_config(path: Path, *, force: bool = False) -> None:
    """Write a file that explains every setting and changes none. An existing one is replaced only with ``force``.

    It is readable by its owner only: agents' environments may hold secrets. Raises UsageError.
    """
    text = render_template(Settings)
    if force and path.exists():
        _replace(path, text)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise UsageError(f"there is a file {path} already; --force replaces it")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from exc


def check_config(path: Path | None) -> list[str]:
    """Everything that is wrong with the file (None: the embedded defaults), one line each; empty = nothing to mend.

    It is what a supervisor would refuse that was started here with this environment. Runs the gateway's hooks file, as
    the supervisor does when it starts.
    """
    try:
        text = "" if path is None else read_settings_file(path)
        settings = parse_settings(text, path, machine=os.environ)
        if settings.gateway.hooks:
            from gateway.hooks import load_hooks  # noqa: PLC0415  # only this command needs it

            try:
                load_hooks(Path(settings.gateway.hooks))
            except UsageError as exc:
                raise settings_error([Problem(("gateway", "hooks"), exc.message)], text, path) from exc
    except SettingsError as exc:
        return str(exc).splitlines()
    return []


def show_config(settings: Settings, *, as_json: bool = False) -> str:
    """Every value that holds, secrets hidden: as TOML, or as JSON with times in seconds and sizes in bytes."""
    if as_json:
        return msgspec.json.format(msgspec.json.encode(_redacted(as_table(settings)))).decode()
    return tomli_w.dumps(_redacted(file_shape(humanize(settings)))).rstrip("\n")


def set_config(path: Path, key: str, value: str) -> ConfigChange:
    """Set one key of the file, which is made when it is not there; a value that is no TOML is taken as a text.

    Only a file that can be used is written, atomically and with the old one's mode. Comments stay, unless the key
    stands where it cannot be changed alone (inside a one-line table, say): then the file is rewritten without
    them, and the old one is kept as ``FILE.bak``.

    Raises:
        UsageError: it is no key, or the file cannot be read or written.
        SettingsError: with this value the settings could not be used; the file stays as it was.
    """
    keys = parse_key(key)
    text = read_settings_file(path) if path.exists() else ""
    _check_agent(keys, parse_toml(text, path).get("agents", {}), path)
    edited, taken = _first_usable(path, text, keys, value_candidates(value))
    backup = None
    if not edited.in_place:
        backup = path.with_name(f"{path.name}.bak")
        _replace(backup, text)
    _replace(path, edited.text)
    for name in reversed(keys):
        taken = {name: taken}
    shown = _redacted(taken)
    for name in keys:
        shown = shown[name]
    return ConfigChange(path, ".".join(inline_key(name) for name in keys), inline_value(shown), backup)


def _check_agent(keys: tuple[str, ...], agents: Mapping[str, Any], path: Path) -> None:
    """Raise UsageError for a key of an agent that is not there, but for those that begin a definition.

    A misspelt name would define another agent, which is the bundled one.
    """
    if len(keys) < 3 or keys[0] != "agents" or keys[2] in _BEGINNINGS or keys[1] in (*agents, *_KNOWN_AGENTS):
        return
    meant = difflib.get_close_matches(keys[1], agents, n=1)
    hint = f"did you mean {meant[0]!r}" if meant else f"to define it, set agents.{inline_key(keys[1])}.dialect first"
    raise UsageError(f"there is no agent {keys[1]!r} in {path}; {hint}")


_BEGINNINGS = frozenset({"dialect", "command"})
_KNOWN_AGENTS = ("main", "defaults", "gateway_prompts")
"""Tables in ``[agents]`` that need not be written: the default agent's, and those with a meaning of their own."""


def add_agent(path: Path, name: str, definition: Mapping[str, Any]) -> AgentAddition:
    """Write an agent definition into the file, which is made when it is not there; all others stay as they are.

    The same promises as those of ``set_config``. Raises UsageError for a name that no agent can have, or that one has;
    SettingsError where the file could not be used with the definition.
    """
    if problem := agent_name_problem(name):
        raise UsageError(problem)
    old = text = read_settings_file(path) if path.exists() else ""
    table = parse_toml(text, path)
    if name in table.get("agents", {}):
        raise UsageError(f"there is an agent {name!r} in {path} already; --name gives this one another name")
    in_place = True
    for key, value in definition.items():
        edited = edit_text(text, ("agents", name, key), value)
        text, in_place = edited.text, in_place and edited.in_place
    parse_settings(text, path)
    backup = _write(path, old, EditResult(text, in_place))
    header = f"[agents.{inline_key(name)}]"
    shown = [header, *(f"{inline_key(key)} = {inline_value(value)}" for key, value in definition.items())]
    return AgentAddition(path, name, dict(definition), "\n".join(shown), backup)


def delete_agent(path: Path, name: str) -> Path | None:
    """Remove an agent's definition from the file; the backup, as of ``ConfigChange``.

    Raises UsageError where it is not there; SettingsError where something else in the file needs it.
    """
    old = read_settings_file(path)
    if name not in parse_toml(old, path).get("agents", {}):
        raise UsageError(f"there is no agent {name!r} in {path}")
    edited = remove_text(old, ("agents", name))
    parse_settings(edited.text, path)
    return _write(path, old, edited)


def _write(path: Path, old: str, edited: EditResult) -> Path | None:
    """Put the new text in place; where its comments could not be kept, the old one stays beside it."""
    backup = None if edited.in_place else path.with_name(f"{path.name}.bak")
    if backup is not None:
        _replace(backup, old)
    _replace(path, edited.text)
    return backup


def _first_usable(path: Path, text: str, keys: tuple[str, ...], values: list[Any]) -> tuple[EditResult, Any]:
    """The first reading of the value with which the settings hold.

    Raises the error of the likeliest one, with the lines of the file as it is.
    """
    errors = []
    for value in values:
        edited = edit_text(text, keys, value)
        try:
            parse_settings(edited.text, path)
        except SettingsError as exc:
            errors.append(settings_error(exc.problems, text, path))
        else:
            return edited, value
    raise errors[0]


# --- secrets ----------------------------------------------------------------------------------------------------------


def _redacted(value: Any, name: str = "") -> Any:
    """The same with secrets hidden: values of environments, what is called a token, passwords in addresses, hooks."""
    if isinstance(value, Mapping):
        if name == "env":
            return dict.fromkeys(value, HIDDEN)
        if name == "webhooks":
            return {key: _redacted_hook(hook) for key, hook in value.items()}
        return {key: _redacted(item, key) for key, item in value.items()}
    if isinstance(value, list):
        redacted = _redacted_pair if name in ("env", "headers") else _redacted
        return redacted_arguments([redacted(item) for item in value])
    if isinstance(value, str):
        return HIDDEN if value and is_secret_name(name) else _PASSWORD_IN_URL.sub(HIDDEN, value)
    return value


def _redacted_pair(pair: Any) -> Any:
    """A variable or a header of an MCP server."""
    return {**pair, "value": HIDDEN} if isinstance(pair, Mapping) else HIDDEN


def _redacted_hook(hook: Mapping[str, Any]) -> dict[str, Any]:
    """Hide the path too: with many services it is a secret. ``secret_env`` names a variable and is not."""
    shown = {key: item if key == "secret_env" else _redacted(item, key) for key, item in hook.items()}
    return {**shown, "url": _PATH_OF_URL.sub(f"/{HIDDEN}", hook["url"])}


def redacted_arguments(items: list[Any]) -> list[Any]:
    """Arguments of a program: ``--token=X`` and what follows ``--token``."""
    hidden = []
    hide_next = False
    for item in items:
        flag, equals, _ = item.partition("=") if isinstance(item, str) else ("", "", "")
        secret = flag.startswith("-") and is_secret_name(flag)
        hidden.append(HIDDEN if hide_next else f"{flag}={HIDDEN}" if secret and equals else item)
        hide_next = secret and not equals
    return hidden


# --- files ------------------------------------------------------------------------------------------------------------


def _replace(path: Path, text: str) -> None:
    """Put the text in the file's place in one step; a link stays a link, mode and owner stay."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text.encode(), keep_mode=True, durable=True)
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from exc
