"""Where the settings file is, and the data directory and socket it names, read without the schema: it takes 50 ms."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from settings.problems import SettingsError
from wire.files import foreign_write_access


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


def read_settings_file(path: Path) -> str:
    """The text of the file. Raises SettingsError where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as exc:
        raise SettingsError(f"cannot read the settings file {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise SettingsError(f"{path}:{line}: the file is not UTF-8 text") from exc


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
    where = resolve_path(path, data_dir) if isinstance(data_dir, str) and data_dir else ""
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


def absolute_data_dir(flag: str | None, configured: str, path: Path | None) -> str:
    """The data directory that a flag, else the file at ``path``, names; else the user's."""
    if flag:
        return resolve_path(None, flag)
    if configured and path is not None:
        return resolve_path(path, configured)
    import platformdirs  # noqa: PLC0415  # 17 ms that a command with a data directory of its own need not pay

    return platformdirs.user_state_dir("pool", appauthor=False)


def resolve_path(file: Path | None, name: str) -> str:
    """A path as the file (or, without one, the command line) means it, made absolute."""
    place = Path() if file is None else file.parent
    return os.path.abspath(place / Path(name).expanduser())  # noqa: PTH100  # also folds "..", which absolute() keeps
