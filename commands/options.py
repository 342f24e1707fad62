"""Options that commands share, the settings, and the connection to the supervisor."""

import functools
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from commands.completion import complete_agents, complete_roles, complete_sessions
from errors import UsageError
from wire.units import Seconds

if TYPE_CHECKING:
    from settings.schema import Settings


_CONNECTION_FLAGS = ("socket", "config", "data_dir")


def as_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read an option such as ``30s`` or ``5m``."""
    try:
        return None if value is None else float(Seconds.parse(value))
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


def _inherit_from_group(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """An option that was given before the name of a subcommand holds for it too."""
    return value or (ctx.parent and ctx.parent.params.get(param.name or "")) or value


def inherited_option(*names: str, **options: Any) -> Callable[[Any], Any]:
    """An option of a group and of its subcommand: given to either, it holds for the subcommand."""
    return click.option(*names, callback=_inherit_from_group, **options)


def is_interactive() -> bool:
    """Whether stdin is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Ask before a destructive step, unless ``yes`` (set by ``flag``). Raises UsageError without a terminal."""
    if yes:
        return
    if not is_interactive():
        raise UsageError(f"this needs a confirmation ({question}), and there is no terminal to ask on; give {flag}")
    click.confirm(question, abort=True, err=True)


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_inherit_from_group, help="Print one JSON document instead of tables."
)


def read_text(text: str, stdin: BinaryIO) -> str:
    """The text of a prompt: as given, or all of stdin for ``-``. Raises UsageError for what is no text."""
    raw = stdin.read() if text == "-" else os.fsencode(text)
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the prompt is not UTF-8 text: {exc}") from exc


def print_answer(answer: Any, text: str, *, as_json: bool) -> None:
    """The answer of a method as JSON where that is asked for, else the line ``text``."""
    if as_json:
        print_json(answer)
    else:
        click.echo(text)


def print_json(value: Any) -> None:
    """One JSON document on stdout, indented."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


def session_option(text: str, *, is_inherited: bool = False, **more: Any) -> Callable[[Any], Any]:
    """``-s KEY`` with the help ``text``. ``is_inherited``: see ``inherited_option``; ``more``: as click takes it."""
    option = inherited_option if is_inherited else click.option
    return option("-s", "--session", metavar="KEY", shell_complete=complete_sessions, help=text, **more)


def agent_option(text: str = "Agent definition (default: main).", **more: Any) -> Callable[[Any], Any]:
    """``-a NAME`` with the help ``text``; ``more``: as click takes it."""
    return click.option("-a", "--agent", metavar="NAME", shell_complete=complete_agents, help=text, **more)


def role_option(text: str = "Role (default: default).") -> Callable[[Any], Any]:
    """``-r NAME`` with the help ``text``."""
    return click.option("-r", "--role", metavar="NAME", shell_complete=complete_roles, help=text)


required_session = session_option("The session.", required=True)


config_option = click.option(
    "--config", metavar="FILE", callback=_inherit_from_group, help="The settings file ($POOL_CONFIG)."
)


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that find the supervisor: ``socket``, ``config``, ``data_dir``."""
    for option in (
        click.option(
            "--data-dir", metavar="DIR", callback=_inherit_from_group, help="The supervisor's data directory."
        ),
        config_option,
        click.option(
            "--socket", metavar="PATH", callback=_inherit_from_group, help="The control socket ($POOL_SOCKET)."
        ),
    ):
        command = option(command)
    return command


def connection_flags(names: Collection[str] = _CONNECTION_FLAGS) -> str:
    """The options of this command that find the supervisor, of these ``names``, for a command to be copied."""
    params = click.get_current_context().params
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(params[name])}" for name in names if params.get(name))


def current_command(*, leave_out: Collection[str]) -> str:
    """This command with the options it was given, but for those of these names, to be copied into a shell."""
    names = click.get_current_context().command_path.split()[1:]
    return shlex.join(["pool", *names, *current_arguments(leave_out=leave_out)])


def current_arguments(*, leave_out: Collection[str]) -> list[str]:
    """The options that this command was given, but for those of these names."""
    context, words = click.get_current_context(), list[str]()
    for param in context.command.params:
        value = context.params.get(param.name or "")
        if value and param.name not in leave_out:
            values = value if isinstance(value, tuple) else (value,)
            words += (
                [param.opts[0]] if value is True else [word for one in values for word in (param.opts[0], str(one))]
            )
    return words


def load_with_flags(
    config: str | None, data_dir: str | None, *, machine: Mapping[str, str] | None = None, **limits: int | None
) -> "Settings":
    """The settings in force: of the file that is named or found, changed by what the command line says.

    ``machine`` as in ``settings.load_settings``.
    """
    from settings.load import load_settings
    from settings.location import find_settings_file

    path = find_settings_file(config, os.environ, working_directory())
    settings = load_settings(path, data_dir=data_dir, machine=machine, **limits)
    _readable_data_dir(settings.data_dir)
    return settings


def _readable_data_dir(name: str) -> str:
    if not _is_text(name):
        problem = f"the data directory {name!r} has a name that is not UTF-8 text"
        raise UsageError(f"{problem}; name another one with --data-dir, or `data_dir` in the settings")
    return name


def working_directory() -> Path:
    """Where the command was started. Raises UsageError where that is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory does not exist any more; go to another one (cd)") from None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_socket(socket: str | None, config: str | None, data_dir: str | None) -> Path:
    """The path of the supervisor's control socket."""
    from doors.locations import find_supervisor_socket, resolve_socket

    if socket or os.environ.get("POOL_SOCKET"):
        return resolve_socket(socket, os.environ, None, Path())
    where, configured = _configured_location(config, data_dir)
    return find_supervisor_socket(resolve_socket(None, os.environ, configured, where), where)


def _configured_location(config: str | None, data_dir: str | None) -> tuple[Path, str]:
    """Data directory and socket of the settings. Raises SettingsError.

    Invalid settings are enough where a supervisor is found by them: it runs with what they were before.
    """
    from settings.location import absolute_data_dir, find_settings_file
    from settings.problems import SettingsError

    if find_settings_file(config, os.environ, working_directory()) is None:
        return Path(_readable_data_dir(absolute_data_dir(data_dir, "", None))), ""
    try:
        settings = load_with_flags(config, data_dir)
    except SettingsError as exc:
        place = _salvaged_location(config, data_dir)
        if place is None:
            raise
        click.echo(f"pool: the settings cannot be used, but a supervisor runs: {exc}", err=True)
        return place
    return Path(settings.data_dir), settings.socket


def _salvaged_location(config: str | None, data_dir: str | None) -> tuple[Path, str] | None:
    from doors.locations import find_supervisor_socket, is_listening, socket_path
    from settings.location import absolute_data_dir, find_settings_file, salvage_paths

    found, configured = salvage_paths(find_settings_file(config, os.environ, working_directory()))
    where = Path(absolute_data_dir(data_dir or found, "", None))
    socket = find_supervisor_socket(socket_path(None, os.environ, configured, where), where)
    return (where, configured) if is_listening(socket) else None


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command a connection to the supervisor, found by ``--socket``, ``--config``, ``--data-dir``."""

    @connection_options
    @functools.wraps(command)
    def connected(socket: str | None, config: str | None, data_dir: str | None, **rest: Any) -> None:
        from doors.control.client import ControlClient

        with ControlClient(find_socket(socket, config, data_dir)) as client:
            command(client, **rest)

    return connected
