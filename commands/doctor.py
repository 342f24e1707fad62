"""``pool doctor``: have the facts about this machine collected and judged, and print what came of it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from commands.options import connection_options, json_option, load_with_flags, print_json


@click.command()
@json_option
@connection_options
@click.pass_context
def doctor(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool
) -> None:
    """Check this machine's prerequisites for these settings; exit code 1 when a required one is missing.

    Starts each agent of dialect acp once, for a minute at most, and the program of each node over ssh.
    """
    from commands.checks import CheckVerdict
    from commands.doctor_checks import diagnose
    from commands.machine_facts import gather_facts
    from doors.locations import socket_path

    settings = load_with_flags(config, data_dir)
    where = Path(settings.data_dir)
    path = socket_path(socket, os.environ, settings.socket, where)
    checks = diagnose(gather_facts(settings, where, path, on_probe=_announce))
    if as_json:
        print_json(checks)
    else:
        _print(checks)
    ctx.exit(int(any(check.verdict is CheckVerdict.MISSING for check in checks)))


def _print(checks: object) -> None:
    import msgspec

    from commands.output import open_console
    from commands.tables import checks_table

    open_console().print(checks_table(msgspec.to_builtins(checks)))


def _announce(names: Sequence[str]) -> None:
    """Say why it takes so long, where that is read."""
    if sys.stderr.isatty():
        click.echo(f"starting {', '.join(names)} ...", err=True)
