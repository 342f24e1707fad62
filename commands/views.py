"""Commands that show what is going on, and orders to one worker."""

from typing import TYPE_CHECKING, Any

import click

from commands.options import connection_flags, json_option, with_client
from errors import UsageError

if TYPE_CHECKING:
    from doors.control.client import ControlClient


_CHAT_TYPES = ("dm", "group", "channel", "thread")


@click.command()
@click.option("--watch", is_flag=True, help="Draw it anew every second until Ctrl-C.")
@json_option
@with_client
def status(client: "ControlClient", *, watch: bool, as_json: bool) -> None:
    """Show the pool: figures, workers, waiters, profiles, latencies."""
    from commands.output import show_result, watch_status

    if watch and as_json:
        raise UsageError("--watch draws a screen and --json prints a document; choose one")
    if watch:
        watch_status(client, place=connection_flags())
    else:
        show_result(client, "status", as_json=as_json, place=connection_flags())


@click.command()
@with_client
def top(client: "ControlClient") -> None:
    """Watch the pool live: workers, who waits, sessions with their last lines, events, how long things take.

    q quits, space holds the picture.
    """
    from commands.top import run_top

    run_top(client, place=connection_flags())


@click.command()
@json_option
@with_client
def workers(client: "ControlClient", *, as_json: bool) -> None:
    """List the worker processes."""
    from commands.output import show_result

    show_result(client, "workers.list", as_json=as_json)


@click.command()
@json_option
@with_client
def waiting(client: "ControlClient", *, as_json: bool) -> None:
    """List who waits for a worker, and why."""
    from commands.output import show_result

    show_result(client, "waiting.list", as_json=as_json)


@click.command()
@click.option("-s", "--session", metavar="KEY", help="For this session.")
@click.option("-a", "--agent", metavar="NAME", help="For this agent definition.")
@click.option("-r", "--role", metavar="NAME", help="In this role.")
@json_option
@with_client
def explain(client: "ControlClient", *, as_json: bool, **params: str | None) -> None:
    """Show for every worker how well it fits a session or an agent, and what rules it out."""
    from commands.output import show_explanation

    show_explanation(client, params, as_json=as_json)


def _as_peer(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    """Read ``channel:123``: the kind and the id of a chat."""
    if value is None:
        return None
    kind, colon, name = value.partition(":")
    if not colon or kind not in _CHAT_TYPES or not name:
        raise click.BadParameter(f"write KIND:ID, KIND being one of {', '.join(_CHAT_TYPES)}", ctx, param)
    return {"kind": kind, "id": name}


@click.command()
@click.option("--channel", required=True, metavar="C", help="Where it came in, as telegram.")
@click.option("--chat-type", required=True, type=click.Choice(_CHAT_TYPES), help="What kind of chat it is.")
@click.option("--sender", "sender_id", required=True, metavar="S", help="Who wrote it.")
@click.option("--chat", "chat_id", metavar="C", help="Which chat; of a direct message the sender's.")
@click.option("--account", "account_id", metavar="A", help="Which of our accounts received it.")
@click.option("--thread", "thread_id", metavar="T", help="In which thread.")
@click.option("--topic", "topic_id", metavar="T", help="In which topic of a group.")
@click.option("--guild", "guild_id", metavar="G", help="In which guild.")
@click.option("--role-id", "member_role_ids", multiple=True, metavar="R", help="A role of the sender; more than once.")
@click.option("--parent", "parent_peer", callback=_as_peer, metavar="KIND:ID", help="The chat a thread belongs to.")
@click.option("--text", default="", metavar="T", help="What it says.")
@json_option
@with_client
def route(client: "ControlClient", text: str, *, as_json: bool, **source: Any) -> None:
    """Show whose a message from a channel would be: agent, session, role, workspace, and why. Runs nothing."""
    from commands.output import show_route
    from commands.requests import message_source

    show_route(client, message_source(**source), text, as_json=as_json)


@click.group()
def worker() -> None:
    """Stop or recycle one worker."""


@worker.command("stop")
@click.argument("worker_id", metavar="ID")
@with_client
def stop_worker(client: "ControlClient", worker_id: str) -> None:
    """End the worker now; a turn in flight fails, its session goes on elsewhere."""
    client.call("workers.stop", {"worker": worker_id})
    click.echo(f"worker {worker_id} is being stopped")


@worker.command("recycle")
@click.argument("worker_id", metavar="ID")
@with_client
def recycle_worker(client: "ControlClient", worker_id: str) -> None:
    """Replace the worker at its next turn boundary."""
    client.call("workers.recycle", {"worker": worker_id})
    click.echo(f"worker {worker_id} will be replaced")
