"""Commands for the supervisor itself: run it, stop it, hold it, empty it."""

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import as_seconds, json_option, load, place_options, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["drain", "pause", "reload", "resume", "run", "stop"]


@click.command(short_help="Run a supervisor in the foreground.")
@place_options
@click.option("--min", "min_workers", type=int, metavar="N", help="Idle workers to keep (pool.min).")
@click.option("--max", "max_workers", type=int, metavar="N", help="Worker processes at most (pool.max).")
@click.pass_context
def run(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, **limits: int | None
) -> None:
    """Run a supervisor in the foreground, until SIGTERM, Ctrl-C or `pool stop`."""
    import app
    from doors.hardening import harden
    from doors.heap import bound_heap
    from doors.last_words import ends_without_a_reader
    from doors.paths import resolve_socket

    harden()
    bound_heap(os.environ)
    read = functools.partial(load, config, data_dir, machine=os.environ, **limits)
    settings = read()
    where = Path(settings.data_dir)
    path = resolve_socket(socket, os.environ, settings.socket, where)
    with ends_without_a_reader():
        code = app.run(settings, data_dir=where, socket=path, live=sys.stderr.isatty(), reread=read)
    ctx.exit(code)


@click.command(short_help="End the turns in flight, then the supervisor.")
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="Give up waiting after this; the supervisor still stops."
)
@with_client
def stop(client: "ControlClient", timeout: float | None) -> None:
    """Stop the supervisor: turns in flight end first (pool.drain_timeout), then its workers."""
    from doors.requests import stop_supervisor

    stop_supervisor(client, timeout)
    click.echo("the supervisor has stopped")


@click.command(short_help="Grant no more workers; turns in flight go on.")
@with_client
def pause(client: "ControlClient") -> None:
    """Grant no more workers until `pool resume`; turns in flight go on."""
    client.call("pause")
    click.echo("paused")


@click.command()
@with_client
def resume(client: "ControlClient") -> None:
    """Undo `pool pause` or `pool drain`."""
    client.call("resume")
    click.echo("running")


@click.command(short_help="Let turns in flight end and stop all workers.")
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="How long turns may take to end (pool.drain_timeout)."
)
@with_client
def drain(client: "ControlClient", timeout: float | None) -> None:
    """Take nothing new, let turns in flight end, stop all workers; the supervisor stays."""
    from doors.requests import drain_supervisor

    drain_supervisor(client, timeout)
    click.echo("drained")


@click.command(short_help="Read the settings file again.")
@json_option
@with_client
def reload(client: "ControlClient", *, as_json: bool) -> None:
    """Read the settings file again; what is wrong with it is told, and nothing changes."""
    from doors.console import show_reload

    show_reload(client, as_json=as_json)
