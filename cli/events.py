"""``pool events``: what goes on, as it goes on, and what a session is to be told of it."""

import sys
from typing import TYPE_CHECKING

import click

from cli.options import given_command, given_place, json_option, session_option, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["events"]


@click.group()
def events() -> None:
    """Follow what goes on in sessions; have one told what has happened."""


@events.command("follow")
@click.option("-s", "--session", metavar="KEY", help="Only of this session.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    type=click.Choice(("progress", "control", "monitor")),
    help="Only what a UI draws, what needs a person, or what governs; may be given again.",
)
@click.option("--type", "kinds", multiple=True, metavar="T", help="Only this type of event; may be given again.")
@click.option(
    "--since", type=click.IntRange(min=0), metavar="SEQ", help="Go on behind this bookmark; 0 from the start."
)
@click.option("--no-reconnect", is_flag=True, help="End when the supervisor goes away.")
@click.option("--json", "as_json", is_flag=True, help="One event a line as JSON, as into a pipe.")
@with_client
@click.pass_context
def follow(
    ctx: click.Context,
    client: "ControlClient",
    *,
    session: str | None,
    channels: tuple[str, ...],
    kinds: tuple[str, ...],
    since: int | None,
    no_reconnect: bool,
    as_json: bool,
) -> None:
    """Show events as they come, until Ctrl-C; then say from where to go on.

    It goes on by itself when the supervisor has been started again. Into a pipe it writes JSON lines.
    """
    from doors.event_views import open_view
    from doors.following import follow_events
    from doors.requests import given

    wish = given(session=session, channels=list(channels) or None, kinds=list(kinds) or None)
    view = open_view(as_json=as_json, place=given_place())
    command = given_command(leave_out=("since",))
    follow_events(client, wish, view, since=since, reconnects=not no_reconnect, command=command)
    ctx.exit(130)


@events.command("inject", short_help="Queue a system event for a session.")
@session_option
@click.option(
    "--kind", type=click.Choice(("exec", "cron", "delegate", "channel", "other")), help="What has happened (other)."
)
@json_option
@click.argument("text")
@with_client
def inject(client: "ControlClient", session: str, kind: str | None, text: str, *, as_json: bool) -> None:
    """Queue TEXT (with -, all of stdin) as a system event for a session, and wake its agent.

    The prompt of the next turn begins with a line [SYSTEM] TEXT; with heartbeat.wake off, that is the session's next
    ordinary turn. The event is kept, also over a restart, until a turn that had it has succeeded; at most for an hour,
    or for seven days where --kind is exec or delegate.
    """
    from doors.console import show_injected
    from doors.prompting import read_text
    from doors.requests import given

    show_injected(client, given(session=session, kind=kind, text=read_text(text, sys.stdin.buffer)), as_json=as_json)


@events.command("peek")
@session_option
@json_option
@with_client
def peek(client: "ControlClient", session: str, *, as_json: bool) -> None:
    """Show what a session is to be told with its next turn."""
    from doors.console import show

    show(client, "events.peek", {"session": session}, as_json=as_json)
