"""``pool agents``: list and show the agent definitions; write one of a make that is known; delete one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from commands.completion import complete_agents
from commands.groups import CommandGroup
from commands.options import (
    config_option,
    confirm,
    connection_flags,
    connection_options,
    find_socket,
    json_option,
    load_with_flags,
    print_json,
    working_directory,
)
from errors import UsageError
from profiles.catalogue import MAKES
from wire.terminal import clean

if TYPE_CHECKING:
    from commands.agent_facts import AgentListing
    from settings.config_file import AgentAddition

_EPILOG = """\b
RESUME: whether the agent goes on with a session on another worker; where
        not, it is fed the end of the transcript.
LOGIN:  ok (a worker got through), wanted (one was refused), found (a key
        or a login's file is there), none, unknown."""


@click.group(cls=CommandGroup, invoke_without_command=True, epilog=_EPILOG)
@json_option
@connection_options
@click.pass_context
def agents(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool
) -> None:
    """List the agent definitions; show one; add one of a known make; delete one.

    Works without a supervisor; a running one adds what its workers have shown of their programs.
    """
    if ctx.invoked_subcommand is None:
        _show_agents(socket, config, data_dir, as_json=as_json)


@agents.command("list")
@json_option
@connection_options
def list_all(socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool) -> None:
    """List the agent definitions."""
    _show_agents(socket, config, data_dir, as_json=as_json)


@agents.command("show")
@click.argument("name", metavar="AGENT", shell_complete=complete_agents)
@json_option
@connection_options
def show(name: str, socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool) -> None:
    """Show one agent definition."""
    _show_agents(socket, config, data_dir, only=name, as_json=as_json)


def _show_agents(
    socket: str | None, config: str | None, data_dir: str | None, *, only: str | None = None, as_json: bool
) -> None:
    """``only``: the agent of this name. Raises UsageError where there is none."""
    from commands.agent_facts import inherited_variables, list_agents

    settings = load_with_flags(config, data_dir)
    known = _ask_supervisor(socket, config, data_dir)
    found = list_agents(settings, inherited_variables(settings), known.agents)
    if only is not None:
        named = [agent for agent in found if agent.name == only]
        if not named:
            raise UsageError(f"there is no agent {only!r}; pool agents lists them")
        found = named
    if as_json and only is not None:
        print_json(found[0])
    elif as_json:
        print_json(found)
    else:
        from commands.agents_view import agents_view
        from commands.output import open_console

        console = open_console()
        place, file = connection_flags(), connection_flags(("config",))
        view = agents_view(found, console.width, note=known.note, place=place, file=file)
        console.print(view, crop=False)


class _KnownAgents(NamedTuple):
    """What the running supervisor knows of its agents; None, and a ``note`` why, where none answers."""

    agents: list[dict[str, Any]] | None
    note: str = ""


def _ask_supervisor(socket: str | None, config: str | None, data_dir: str | None) -> _KnownAgents:
    from doors.control.client import ControlClient
    from errors import NoSupervisor, PoolClosed, RequestTimeout

    try:
        with ControlClient(find_socket(socket, config, data_dir)) as client:
            return _KnownAgents(client.call("agents.list"))
    except NoSupervisor:
        return _KnownAgents(None, "no supervisor runs: `pool doctor` starts each agent and says its version")
    except (PoolClosed, RequestTimeout) as exc:  # it stops, or is suspended
        return _KnownAgents(None, f"what the workers of the supervisor have shown is not known: {exc.message}")


@agents.command("add", short_help="Write the definition of a known make.")
@click.argument("make", type=click.Choice(list(MAKES)))
@click.option("--name", metavar="NAME", help="The agent's name (default: the make's).")
@json_option
@config_option
def add(make: str, name: str | None, config: str | None, *, as_json: bool) -> None:
    """Write the definition of an agent of MAKE into the settings file, and say what is missing.

    One that is there stays as it is.
    """
    from commands.agent_facts import definition_of, inherited_variables, list_agents
    from settings.config_file import add_agent
    from settings.location import find_settings_file

    path = find_settings_file(config, os.environ, working_directory()) or Path("pool.toml")
    added = add_agent(path, make if name is None else name, definition_of(make))
    settings = load_with_flags(str(path), None)
    listed = list_agents(settings, inherited_variables(settings), None)
    listing = next(each for each in listed if each.name == added.name)
    if as_json:
        print_json({"file": str(added.file), "agent": listing, "written": added.written, "backup": added.backup})
    else:
        click.echo("\n".join(_added_lines(make, added, listing)))


def _added_lines(make: str, added: "AgentAddition", listing: "AgentListing") -> list[str]:
    """What was written, what is missing, and what to do next."""
    from commands.agents_view import lines_to_type

    place = connection_flags()
    lines = [f"written to {clean(added.file)}:", *(f"  {clean(line)}" for line in added.text.splitlines())]
    if added.backup is not None:
        lines.append(f"the file's comments could not be kept; as it was it is {clean(added.backup)}")
    for part in listing.missing:
        lines += [f"missing: {clean(part.what)}; type", *(f"  {line}" for line in lines_to_type(part, place, place))]
    if MAKES[make].note:
        lines.append(f"note: {MAKES[make].note}")
    return [
        *lines,
        "then:",
        f"  pool doctor{place}    # starts it once",
        f"  pool reload{place}    # or: pool run{place}",
        f'  pool prompt{place} -s try-{added.name} -a {added.name} "hello"',
    ]


@agents.command("delete")
@click.argument("name", metavar="AGENT", shell_complete=complete_agents)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@config_option
def delete(name: str, config: str | None, *, yes: bool) -> None:
    """Remove an agent definition from the settings file, after a confirmation."""
    from settings.config_file import delete_agent
    from settings.location import find_settings_file

    path = find_settings_file(config, os.environ, working_directory())
    if path is None:
        raise UsageError("there is no settings file, and so no agent to delete")
    confirm(f"Remove the agent {clean(name)} from {clean(path)}?", yes=yes)
    backup = delete_agent(path, name)
    click.echo(f"removed from {clean(path)}; a running supervisor: pool reload{connection_flags()}")
    if backup is not None:
        click.echo(f"the file's comments could not be kept; as it was it is {clean(backup)}")
