"""``pool sessions``: list the sessions; show, reset, delete one; its history."""

from typing import Any

import click

from commands.approvals import show_session
from commands.completion import complete_sessions
from commands.groups import CommandGroup
from commands.listing import ListingOptions, SortKey, choose_records, listing_options
from commands.options import confirm, connection_flags, connection_options, json_option, print_answer, with_client
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
@json_option
@with_client
def reset(client: ControlClient, key: str, *, force: bool, as_json: bool) -> None:
    """Reset a session; its old transcript is kept."""
    try:
        answer = _end(client, "sessions.reset", key, force=force)
    except UsageError as exc:
        if not exc.details.get("running"):
            raise
        names = ", ".join(exc.details["running"])
        confirm(f"{names} still runs in the background. End it?", yes=False, flag="--force")
        answer = _end(client, "sessions.reset", key, force=True)
    _print_end(answer, f"{key} is reset", as_json=as_json)


def _end(client: ControlClient, method: str, key: str, **params: bool) -> dict[str, Any]:
    """Reset or delete the session, its running turn ended first."""
    answer: dict[str, Any] = client.call(method, {"session": key, **params}, timeout=SLOW_ANSWER_SECONDS)
    return answer


def _print_end(answer: dict[str, Any], done: str, *, as_json: bool) -> None:
    """``ended`` of the answer: the background commands that ended with the session."""
    ended = ", ".join(map(str, answer["ended"]))
    print_answer(answer, f"{done}; ended with it: {ended}" if ended else done, as_json=as_json)


@sessions.command("delete")
@_key
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
@with_client
def delete(client: ControlClient, key: str, *, yes: bool, as_json: bool) -> None:
    """Delete a session and its history, after a confirmation."""
    confirm(f"Delete {key} and its history?", yes=yes)
    _print_end(_end(client, "sessions.delete", key), f"{key} is deleted", as_json=as_json)


@sessions.command("history")
@_key
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@json_option
@with_client
def history(client: ControlClient, key: str, limit: int | None, *, as_json: bool) -> None:
    """Show the messages of a session."""
    show_result(client, "sessions.history", omit_none(session=key, limit=limit), as_json=as_json)
