"""``pool heartbeat``: have an agent look after things now, and see how all of them stand."""

from typing import TYPE_CHECKING

import click

from cli.options import json_option, place_options, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["heartbeat"]

_EPILOG = """\b
Heartbeats at an interval are off; to turn them on, for all agents or one:
  pool config set agents.defaults.heartbeat.every 30m
  pool config set agents.main.heartbeat.every 1h
  pool reload
Events, such as the end of a background command, wake agents in any case.
To report events with the session's next turn instead:
  pool config set agents.defaults.heartbeat.wake false"""


@click.group(
    invoke_without_command=True, epilog=_EPILOG, short_help="Agents that look after things by themselves: status, run."
)
@place_options
@json_option
@click.pass_context
def heartbeat(ctx: click.Context, /, **options: str | bool | None) -> None:
    """Agents that look after things by themselves: see how they stand, have one do so now.

    A heartbeat is a turn that nobody has asked for. The agent reads HEARTBEAT.md of its workspace and answers
    HEARTBEAT_OK when nothing needs attention; anything else is an alert, delivered where its session last spoke.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(status, **options)


@heartbeat.command("status", short_help="Show how often each agent beats, and what came of it.")
@json_option
@with_client
def status(client: "ControlClient", *, as_json: bool) -> None:
    """Show for every agent how often it beats, when next, and what came of the last time."""
    from doors.console import show

    show(client, "heartbeat.status", as_json=as_json)


@heartbeat.command("run", short_help="Have an agent look after things now, and wait.")
@click.argument("agent", required=False)
@click.option("-s", "--session", metavar="KEY", help="In this session instead of the agent's own.")
@json_option
@with_client
@click.pass_context
def run_heartbeat(
    ctx: click.Context, client: "ControlClient", agent: str | None, session: str | None, *, as_json: bool
) -> None:
    """Have AGENT (else the default one) look after things now, and wait for what comes of it.

    Exits with 1 when the beat has failed, or was not to be.
    """
    from doors.autonomy_requests import beat_now

    ctx.exit(0 if beat_now(client, agent, session, as_json=as_json) else 1)
