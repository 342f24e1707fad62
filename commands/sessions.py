"""``pool sessions``: list the sessions; show, reset, delete one; its history."""

import click

from commands.approvals import show_session
from commands.options import confirm, connection_flags, connection_options, json_option, with_client
from commands.output import show_result
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import UsageError
from wire.messages import omit_none

_key = click.argument("key", metavar="KEY")


@click.group(invoke_without_command=True)
@connection_options
@json_option
@click.pass_context
def sessions(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List the sessions and their workers; get, reset, delete one; its history."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, **options)


@sessions.command("list")
@json_option
@with_client
def list_sessions(client: ControlClient, *, as_json: bool) -> None:
    """List the sessions and their workers."""
    show_result(client, "sessions.list", as_json=as_json, place=connection_flags())


@sessions.command("get")
@_key
@json_option
@with_client
def get_session(client: ControlClient, key: str, *, as_json: bool) -> None:
    """Show one session, and its pending tool calls in full."""
    show_session(client, key, as_json=as_json, place=connection_flags())


@sessions.command("reset")
@_key
@click.option("--force", is_flag=True, help="End background commands without asking.")
@with_client
def reset(client: ControlClient, key: str, *, force: bool) -> None:
    """Reset a session; its old transcript is kept."""
    try:
        ended = _ended_commands(client, "sessions.reset", key, force=force)
    except UsageError as exc:
        if not exc.details.get("running"):
            raise
        names = ", ".join(exc.details["running"])
        confirm(f"{names} still runs in the background. End it?", yes=False, flag="--force")
        ended = _ended_commands(client, "sessions.reset", key, force=True)
    _echo_ended(f"{key} is reset", ended)


def _ended_commands(client: ControlClient, method: str, key: str, **params: bool) -> list[str]:
    """Reset or delete the session, its running turn ended first: the background commands that ended with it."""
    ended = client.call(method, {"session": key, **params}, timeout=SLOW_ANSWER_SECONDS)["ended"]
    return [str(name) for name in ended]


def _echo_ended(done: str, ended: list[str]) -> None:
    click.echo(f"{done}; ended with it: {', '.join(ended)}" if ended else done)


@sessions.command("delete")
@_key
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@with_client
def delete(client: ControlClient, key: str, *, yes: bool) -> None:
    """Delete a session and its history, after a confirmation."""
    confirm(f"Delete {key} and its history?", yes=yes)
    _echo_ended(f"{key} is deleted", _ended_commands(client, "sessions.delete", key))


@sessions.command("history")
@_key
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@json_option
@with_client
def history(client: ControlClient, key: str, limit: int | None, *, as_json: bool) -> None:
    """Show the messages of a session."""
    show_result(client, "sessions.history", omit_none(session=key, limit=limit), as_json=as_json)
