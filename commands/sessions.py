"""``pool sessions``: list the sessions; show, reset, delete one; its history."""

from typing import Any

import click

from commands.approvals import show_session
from commands.completion import complete_sessions
from commands.groups import CommandGroup
from commands.listing import ListingOptions, SortKey, choose_records, listing_options
from commands.options import confirm, connection_flags, connection_options, json_option, with_client
from commands.output import show_records, show_result
from commands.session_states import listed_state
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import UsageError
from wire.messages import omit_none
from wire.session_state import SESSION_STATES

SESSION_SORT_KEYS = {
    "used": SortKey(lambda session: session["updated_at"], is_descending=True),
    "created": SortKey(lambda session: session["created_at"], is_descending=True),
    "waiting": SortKey(lambda session: session["waiting"], is_descending=True),
    "key": SortKey(lambda session: session["key"]),
    "agent": SortKey(lambda session: session["agent"]),
    "state": SortKey(listed_state),
}
_with_listing_options = listing_options(SESSION_STATES, SESSION_SORT_KEYS)
_key = click.argument("key", metavar="KEY", shell_complete=complete_sessions)


@click.group(cls=CommandGroup, invoke_without_command=True)
@_with_listing_options
@json_option
@connection_options
@click.pass_context
def sessions(ctx: click.Context, /, **options: Any) -> None:
    """List the sessions and their workers; show, reset, delete one; its history."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, **options)


@sessions.command("list")
@_with_listing_options
@json_option
@with_client
def list_sessions(client: ControlClient, *, as_json: bool, **options: Any) -> None:
    """List the sessions and their workers, the one used last first."""
    wanted = ListingOptions(**options)
    found = choose_records(client.call("sessions.list"), wanted, SESSION_SORT_KEYS, state_of=listed_state)
    names = "key" if wanted.quiet else None
    show_records("sessions.list", found, names=names, as_json=as_json, place=connection_flags())


@sessions.command("show")
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
