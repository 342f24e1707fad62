"""``pool events``: follow events across restarts of the supervisor; queue and list system events."""

import sys
from functools import partial
from typing import Any

import click

from commands.event_lines import open_events_view
from commands.following import EventFollower, EventsView
from commands.groups import CommandGroup
from commands.options import (
    connection_flags,
    current_command,
    json_option,
    print_answer,
    read_text,
    required_session,
    session_option,
    with_client,
)
from doors.control.client import ControlClient
from errors import PoolError
from wire.messages import omit_none
from wire.terminal import clean


@click.group(cls=CommandGroup)
def events() -> None:
    """Follow the events of sessions; queue and list system events."""


@events.command("follow")
@session_option("Events of this session.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    type=click.Choice(("progress", "control", "monitor")),
    help="Channel: progress, control or monitor (repeatable).",
)
@click.option("--type", "kinds", multiple=True, metavar="T", help="Type of event (repeatable).")
@click.option(
    "--since", type=click.IntRange(min=0), metavar="SEQ", help="Start after this bookmark; 0 is the first event."
)
@click.option("--no-reconnect", is_flag=True, help="End when the supervisor stops.")
@click.option("--json", "as_json", is_flag=True, help="One JSON event a line; the default into a pipe.")
@with_client
@click.pass_context
def follow(
    ctx: click.Context,
    client: ControlClient,
    *,
    session: str | None,
    channels: tuple[str, ...],
    kinds: tuple[str, ...],
    since: int | None,
    no_reconnect: bool,
    as_json: bool,
) -> None:
    """Show events as they come, until Ctrl-C; then print the command that continues from there.

    Reconnects when the supervisor has restarted. Into a pipe it writes JSON lines.
    """
    wish = omit_none(session=session, channels=list(channels) or None, kinds=list(kinds) or None)
    view = open_events_view(as_json=as_json, place=connection_flags())
    command = current_command(leave_out=("since",))
    follow_events(client, wish, view, since=since, reconnects=not no_reconnect, command=command)
    ctx.exit(130)


@events.command("inject", short_help="Queue a system event for a session.")
@required_session
@click.option(
    "--kind",
    type=click.Choice(("exec", "cron", "delegate", "channel", "other")),
    help="Kind of event (default: other).",
)
@json_option
@click.argument("text")
@with_client
def inject(client: ControlClient, session: str, kind: str | None, text: str, *, as_json: bool) -> None:
    """Queue TEXT (with -, all of stdin) as a system event for a session, and wake its agent.

    The prompt of the next turn begins with a line [SYSTEM] TEXT; with heartbeat.wake off, that is the session's next
    ordinary turn. The event is kept, also over a restart, until a turn that had it has succeeded; at most for an hour,
    or for seven days where --kind is exec or delegate.
    """
    params = omit_none(session=session, kind=kind, text=read_text(text, sys.stdin.buffer))
    result = client.call("events.inject", params)
    where = clean(result["session"])
    is_same = f"the same event is already queued for {where}; nothing was added"
    print_answer(result, is_same if result["event"] is None else f"the event is queued for {where}", as_json=as_json)


@events.command("list")
@required_session
@json_option
@with_client
def list_system_events(client: ControlClient, session: str, *, as_json: bool) -> None:
    """List the system events that a session's next turn will receive."""
    from commands.output import show_result  # rich: only this command draws a table

    show_result(client, "events.peek", {"session": session}, as_json=as_json)


def follow_events(
    client: ControlClient,
    wish: dict[str, Any],
    view: EventsView,
    *,
    since: int | None,
    reconnects: bool,
    command: str,
) -> None:
    """Show events until Ctrl-C, then print on stderr the command that continues from there.

    ``wish``: the filters of ``subscribe``. ``command``: what was typed, without ``--since``. Raises PoolError when the
    supervisor is lost and ``reconnects`` is False, or for what no new connection would mend.
    """
    follower = EventFollower(wish, view, since=since)
    try:
        if reconnects:
            follower.follow_with_reconnect(client, partial(ControlClient, client.path))
        else:
            follower.follow(client)
    except KeyboardInterrupt:
        view.close()
        sys.stderr.write("\n" if sys.stderr.isatty() else "")  # the terminal has written ^C
    except PoolError:
        view.close()
        _print_bookmark(follower, command)
        raise
    _print_bookmark(follower, command)


def _print_bookmark(follower: EventFollower, command: str) -> None:
    if follower.bookmark is not None:
        sys.stderr.write(f"to continue from here: {command} --since {follower.bookmark}\n")
