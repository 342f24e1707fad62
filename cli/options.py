"""What commands share: common options, the settings, and the way to the supervisor."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wire.units import Seconds

if TYPE_CHECKING:
    from settings import Settings

__all__ = ["as_seconds", "json_option", "load", "place_options", "with_client"]


def as_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read an option such as ``30s`` or ``5m``."""
    try:
        return None if value is None else float(Seconds.parse(value))
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let the command be told where the supervisor is: ``socket``, ``config``, ``data_dir``."""
    for option in (
        click.option("--data-dir", metavar="DIR", help="The supervisor's data directory."),
        click.option("--config", metavar="FILE", help="The settings file ($POOL_CONFIG)."),
        click.option("--socket", metavar="PATH", help="The control socket ($POOL_SOCKET)."),
    ):
        command = option(command)
    return command


def load(config: str | None, data_dir: str | None, **limits: int | None) -> "Settings":
    """The settings in force: of the file that is named or found, changed by what the command line says."""
    from settings import find_settings_file, load_settings

    return load_settings(find_settings_file(config, os.environ, Path.cwd()), data_dir=data_dir, **limits)


def _find_socket(socket: str | None, config: str | None, data_dir: str | None) -> Path:
    from doors.lock import find_supervisor
    from doors.paths import resolve_socket

    if socket or os.environ.get("POOL_SOCKET"):
        return resolve_socket(socket, os.environ, None, Path())
    settings = load(config, data_dir)
    where = Path(settings.data_dir)
    return find_supervisor(resolve_socket(None, os.environ, settings.socket, where), where)


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command a connection to the supervisor, found by ``--socket``, ``--config``, ``--data-dir``."""

    @place_options
    @functools.wraps(command)
    def connected(socket: str | None, config: str | None, data_dir: str | None, **rest: Any) -> None:
        from doors.control_client import ControlClient

        with ControlClient(_find_socket(socket, config, data_dir)) as client:
            command(client, **rest)

    return connected
