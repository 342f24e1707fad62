"""Commands about this machine."""

import os
from pathlib import Path

import click

from cli.options import json_option, load, place_options

__all__ = ["demo", "doctor"]


@click.command(short_help="Say what this machine lacks for these settings.")
@place_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool
) -> None:
    """Say what this machine lacks for these settings; 1 when something required is missing."""
    from doors.console import show_checks
    from doors.doctor import examine
    from doors.facts import gather_facts
    from doors.paths import place_socket

    settings = load(config, data_dir)
    where = Path(settings.data_dir)
    path = place_socket(socket, os.environ, settings.socket, where)
    facts = gather_facts(
        settings.pool,
        settings,
        settings.http,
        router=settings.router,
        passed=settings.rpc.env_passthrough,
        data_dir=where,
        socket=path,
    )
    checks = examine(facts)
    ctx.exit(0 if show_checks(checks, as_json=as_json) else 1)


@click.command(short_help="Show it all in half a minute; needs nothing.")
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show it: a supervisor, prompts, a worker killed and replaced, a clean end. Needs nothing."""
    from doors.demo import run_demo

    ctx.exit(run_demo())
