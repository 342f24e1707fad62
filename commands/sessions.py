"""``pool sessions``: list the sessions, look at one, begin one anew, forget one."""

from typing import TYPE_CHECKING

import click

from commands.options import confirm, connection_flags, connection_options, json_option, with_client
from errors import UsageError

if TYPE_CHECKING:
    from doors.control.client import ControlClient


_key = click.argument("key", metavar="KEY")


@click.group(invoke_without_command=True)
@connection_options
@json_option
@click.pass_context
def sessions(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List the sessions and where they are; get, reset, delete one; its history."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, **options)


@sessions.command("list")
@json_option
@with_client
def list_sessions(client: "ControlClient", *, as_json: bool) -> None:
    """List the sessions and where they are."""
    from commands.output import show_result

    show_result(client, "sessions.list", as_json=as_json, place=connection_flags())


@sessions.command("get")
@_key
@json_option
@with_client
def get_session(client: "ControlClient", key: str, *, as_json: bool) -> None:
    """Show one session, and its pending tool calls in full."""
    from commands.approvals import show_session

    show_session(client, key, as_json=as_json, place=connection_flags())


@sessions.command("reset")
@_key
@click.option("--force", is_flag=True, help="End background commands without asking.")
@with_client
def reset(client: "ControlClient", key: str, *, force: bool) -> None:
    """Reset a session; its old transcript is kept."""
    from commands.requests import reset_session

    try:
        ended = reset_session(client, key, force=force)
    except UsageError as exc:
        if not exc.details.get("running"):
            raise
        names = ", ".join(exc.details["running"])
        confirm(f"{names} still runs in the background. End it?", yes=False, flag="--force")
        ended = reset_session(client, key, force=True)
    _echo_ended(f"{key} is reset", ended)


def _echo_ended(done: str, ended: list[str]) -> None:
    click.echo(f"{done}; ended with it: {', '.join(ended)}" if ended else done)


@sessions.command("delete")
@_key
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_client
def delete(client: "ControlClient", key: str, *, yes: bool) -> None:
    """Forget the session and what was said in it; asks first."""
    confirm(f"Delete {key} and what was said in it?", yes=yes)
    from commands.requests import delete_session

    _echo_ended(f"{key} is deleted", delete_session(client, key))


@sessions.command("history")
@_key
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@json_option
@with_client
def history(client: "ControlClient", key: str, limit: int | None, *, as_json: bool) -> None:
    """Show what was said in the session."""
    from commands.output import show_result

    show_result(client, "sessions.history", {"session": key, **({"limit": limit} if limit else {})}, as_json=as_json)
