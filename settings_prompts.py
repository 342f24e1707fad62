"""Reads system prompts that the settings name as ``@path``, together with the settings and never later."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from profiles import AgentSettings, RoleSettings
from settings_problems import Problem
from settings_tables import Settings
from wire.regular_file import open_regular

__all__ = ["with_prompt_files"]

_MAX_BYTES = 100_000
"""A prompt is one argument of the worker's program; Linux limits these to 128 KiB."""
_KEYS = ("system_prompt", "append_system_prompt")

Table = TypeVar("Table", AgentSettings, RoleSettings)


def with_prompt_files(settings: Settings, place: Callable[[str], str]) -> tuple[Settings, list[Problem]]:
    """The settings with the files' texts, and a problem for each file that cannot be read.

    ``@path`` is a file, ``@@text`` the text ``@text``; anything else is literal text. ``place`` makes a path absolute.
    """
    problems: list[Problem] = []

    def read(tables: Mapping[str, Table], kind: str) -> dict[str, Table]:
        return {name: _with_texts(table, (kind, name), place, problems) for name, table in tables.items()}

    agents, roles = read(settings.agents, "agents"), read(settings.roles, "roles")
    return msgspec.structs.replace(settings, agents=agents, roles=roles), problems


def _with_texts(table: Table, path: tuple[str, str], place: Callable[[str], str], problems: list[Problem]) -> Table:
    found = {}
    for key in _KEYS:
        value = getattr(table, key, None)
        if value is None or not value.startswith("@"):
            continue
        try:
            found[key] = value[1:] if value.startswith("@@") else _read(Path(place(value[1:])))
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            problems.append(Problem((*path, key), f"cannot read {place(value[1:])}: {reason}; @@ begins a text with @"))
    return msgspec.structs.replace(table, **found) if found else table


def _read(path: Path) -> str:
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is longer than {_MAX_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8 text") from exc
