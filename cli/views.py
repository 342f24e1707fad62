"""Commands that show what is going on, and orders to one worker."""

from typing import TYPE_CHECKING

import click

from cli.options import json_option, with_client
from errors import UsageError

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["explain", "sessions", "status", "waiting", "worker", "workers"]


@click.command()
@click.option("--watch", is_flag=True, help="Draw it anew every second until Ctrl-C.")
@json_option
@with_client
def status(client: "ControlClient", *, watch: bool, as_json: bool) -> None:
    """Show the pool: figures, workers, waiters, profiles, latencies."""
    from doors.console import show, watch_status

    if watch and as_json:
        raise UsageError("--watch draws a screen and --json prints a document; choose one")
    if watch:
        watch_status(client)
    else:
        show(client, "status", as_json=as_json)


@click.command()
@json_option
@with_client
def workers(client: "ControlClient", *, as_json: bool) -> None:
    """List the worker processes."""
    from doors.console import show

    show(client, "workers.list", as_json=as_json)


@click.command()
@json_option
@with_client
def sessions(client: "ControlClient", *, as_json: bool) -> None:
    """List the conversations and where they are."""
    from doors.console import show

    show(client, "sessions.list", as_json=as_json)


@click.command()
@json_option
@with_client
def waiting(client: "ControlClient", *, as_json: bool) -> None:
    """List who waits for a worker, and why."""
    from doors.console import show

    show(client, "waiting.list", as_json=as_json)


@click.command()
@click.option("-s", "--session", metavar="KEY", help="For this conversation.")
@click.option("-a", "--agent", metavar="NAME", help="For this agent definition.")
@click.option("-r", "--role", metavar="NAME", help="In this role.")
@json_option
@with_client
def explain(client: "ControlClient", *, as_json: bool, **params: str | None) -> None:
    """Show for every worker how well it fits a conversation or an agent, and what rules it out."""
    from doors.console import show_explanation

    show_explanation(client, params, as_json=as_json)


@click.group()
def worker() -> None:
    """Stop or recycle one worker."""


@worker.command("stop")
@click.argument("worker_id", metavar="ID")
@with_client
def stop_worker(client: "ControlClient", worker_id: str) -> None:
    """End the worker now; a turn in flight fails, its conversation goes on elsewhere."""
    client.call("workers.stop", {"worker": worker_id})
    click.echo(f"worker {worker_id} is being stopped")


@worker.command("recycle")
@click.argument("worker_id", metavar="ID")
@with_client
def recycle_worker(client: "ControlClient", worker_id: str) -> None:
    """Replace the worker at its next turn boundary."""
    client.call("workers.recycle", {"worker": worker_id})
    click.echo(f"worker {worker_id} will be replaced")
