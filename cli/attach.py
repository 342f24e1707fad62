"""The command that other programs start in place of an agent's own."""

import os

import click

from cli.options import find_socket, place_options, working_directory

__all__ = ["attach"]

_SETTINGS = {"ignore_unknown_options": True}
"""What is no option of ours is the agent's."""


@click.command(
    short_help="Take an agent's place: speak its protocol on stdin and stdout.",
    context_settings=_SETTINGS,
)
@click.option("--mode", type=click.Choice(["rpc"]), required=True, help="How to speak; as the agents have it.")
@click.option("--session", metavar="KEY", help="A session's key, its id, or a transcript; without it a new session.")
@click.option("--agent", metavar="NAME", help="Which agent definition (main).")
@click.option("--role", metavar="NAME", help="In which role (default).")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[AGENT FLAGS]...")
@place_options
def attach(
    arguments: tuple[str, ...],
    mode: str,
    socket: str | None,
    config: str | None,
    data_dir: str | None,
    **options: str | None,
) -> None:
    """Speak the protocol of the agent's own program on stdin and stdout, while a worker of the pool serves it.

    All other flags (--model, --tools, --skill, --session-dir, --no-session, ...) are the agent's, and say what the
    worker must be like.
    """
    from doors.attach.program import run_attach
    from doors.hardening import harden

    harden()
    del mode  # there is one
    env = {name: value for name, value in os.environ.items() if name.startswith("PI_")}
    given = {name: value for name, value in options.items() if value is not None}
    params = {**given, "arguments": arguments, "cwd": str(working_directory()), "env": env}
    click.get_current_context().exit(run_attach(find_socket(socket, config, data_dir), params))
