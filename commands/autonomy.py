"""``pool heartbeats``: list, show, run now. ``pool cron``: list, show, add, delete, enable, disable, run jobs."""

import sys
from typing import Any

import click

from commands.autonomy_view import beat_text, job_started_text
from commands.completion import complete_agents, complete_jobs
from commands.groups import CommandGroup
from commands.options import (
    agent_option,
    connection_options,
    json_option,
    print_answer,
    print_json,
    read_text,
    session_option,
    with_client,
)
from commands.output import open_console, show_records, show_result
from doors.control.client import ControlClient
from errors import UsageError
from wire.messages import omit_none
from wire.terminal import clean

_EPILOG = """\b
Heartbeats at an interval are off; to turn them on, for all agents or one:
  pool config set agents.defaults.heartbeat.every 30m
  pool config set agents.main.heartbeat.every 1h
  pool reload
Events, such as the end of a background command, wake agents in any case.
To report events with the session's next turn instead:
  pool config set agents.defaults.heartbeat.wake false"""


@click.group(cls=CommandGroup, invoke_without_command=True, epilog=_EPILOG)
@json_option
@connection_options
@click.pass_context
def heartbeats(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List each agent's heartbeat; show one; run one now.

    A heartbeat is a turn that no user requested. The agent reads HEARTBEAT.md of its workspace and answers
    HEARTBEAT_OK when nothing needs attention; anything else is an alert, delivered where its session last spoke.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_heartbeats, **options)


@heartbeats.command("list", short_help="Show each agent's heartbeat and its last result.")
@json_option
@with_client
def list_heartbeats(client: ControlClient, *, as_json: bool) -> None:
    """Show for each agent its heartbeat's interval, the next time, and the last result."""
    show_result(client, "heartbeat.status", as_json=as_json)


@heartbeats.command("show")
@click.argument("agent", shell_complete=complete_agents)
@json_option
@with_client
def show_heartbeat(client: ControlClient, agent: str, *, as_json: bool) -> None:
    """Show the heartbeat of one agent, and its last result."""
    found = [record for record in client.call("heartbeat.status") if record["agent"] == agent]
    if not found:
        raise UsageError(f"there is no agent {agent!r}; pool heartbeats lists them")
    if as_json:
        print_json(found[0])
    else:
        show_records("heartbeat.status", found, as_json=False)


@heartbeats.command("run", short_help="Run an agent's heartbeat now, and wait.")
@click.argument("agent", required=False, shell_complete=complete_agents)
@session_option("In this session instead of the agent's own.")
@json_option
@with_client
@click.pass_context
def run_heartbeat(
    ctx: click.Context, client: ControlClient, agent: str | None, session: str | None, *, as_json: bool
) -> None:
    """Run the heartbeat of AGENT (default: the default agent) now, and wait for its result.

    Exits with 1 when the beat failed or was skipped.
    """
    report = client.call("heartbeat.run", omit_none(agent=agent, session=session), timeout=None)
    if as_json:
        print_json(report)
    else:
        open_console().print(beat_text(report))
    ctx.exit(1 if report["outcome"] in ("skipped", "failed") else 0)


_ADD_EPILOG = """\b
Examples:
  pool cron add --at 20m "Remind me to look at the oven."
  pool cron add --at 2031-05-01T08:00 --agent ops "Renew the certificate."
  pool cron add --every 30m --isolated --to webhook:ops \\
    "Check the build. Answer HEARTBEAT_OK when it is green."
  pool cron add --id standup --cron "0 9 * * mon-fri" --tz Europe/Berlin \\
    "Prepare the stand-up."
  pool cron add --id standup --cron "30 9 * * mon-fri" --replace - < job.txt"""

_id = click.argument("job", metavar="JOB", shell_complete=complete_jobs)


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def cron(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List the scheduled jobs; show, add, delete, enable, disable, run one.

    A job is a message in its session (mode main; the agent is woken for it), or runs in a session of its own, which
    begins empty each time unless it is kept, and the agent's answer is delivered (mode isolated). Jobs of the settings
    file, [cron.jobs.NAME], are listed too.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_jobs, after="", **options)


@cron.command("list")
@click.option("--after", default="", metavar="JOB", help="Jobs whose names sort after this one.")
@json_option
@with_client
def list_jobs(client: ControlClient, after: str, *, as_json: bool) -> None:
    """List the jobs: when each is due, and its last result."""
    show_result(client, "cron.list", {"after": after} if after else None, as_json=as_json)


@cron.command("show")
@_id
@json_option
@with_client
def show_job(client: ControlClient, job: str, *, as_json: bool) -> None:
    """Show one job and the results of its latest runs."""
    show_result(client, "cron.get", {"id": job}, as_json=as_json)


@cron.command("add", short_help="Add a scheduled job.", epilog=_ADD_EPILOG)
@click.option("--id", "name", metavar="JOB", help="The job's name: a-z, 0-9, _ and - (default: generated).")
@click.option("--cron", "expression", metavar="EXPR", help='Cron expression: "0 9 * * mon-fri".')
@click.option("--every", metavar="TIME", help="Interval: 30m, 2h, 1d.")
@click.option("--at", metavar="WHEN", help="Once: 2031-05-01T08:00, or a time from now: 20m.")
@click.option("--tz", metavar="ZONE", help="Time zone of --cron and --at (default: this machine's).")
@agent_option("The agent (default: router.default_agent).")
@session_option("The job's session (default: the agent's own).")
@click.option("--isolated", is_flag=True, help="Run in a session of its own and deliver the answer.")
@click.option(
    "--to", "delivery", metavar="TARGET", help="Isolated: receiver of the answer: last, none, webhook:NAME, ..."
)
@click.option("--timeout", metavar="TIME", help="Isolated: limit of a run (default: 10m).")
@click.option("--keep-conversation", is_flag=True, help="Isolated: keep the session from run to run.")
@click.option("--keep/--delete", "keep", default=None, help="Keep the job after a run (default: unless due only once).")
@click.option("--replace", is_flag=True, help="Replace an added job of the same name.")
@json_option
@click.argument("text")
@with_client
def add(
    client: ControlClient,
    *,
    text: str,
    keep: bool | None,
    keep_conversation: bool,
    isolated: bool,
    replace: bool,
    as_json: bool,
    **said: Any,
) -> None:
    """Add a job that sends TEXT (- reads stdin) to an agent on a schedule: one of --cron, --every, --at."""
    said |= {"id": said.pop("name"), "cron": said.pop("expression"), "text": read_text(text, sys.stdin.buffer)}
    said |= {"mode": "isolated" if isolated else None, "keep": keep_conversation or None}
    said |= {"replace": replace or None, "delete_after_run": None if keep is None else not keep}
    added = client.call("cron.add", omit_none(**said))
    print_answer(added, f"{clean(added['id'])}: {clean(added['when'])}", as_json=as_json)
    if added["problem"] is not None and not as_json:
        click.echo(f"warning: {clean(added['problem'])}", err=True)


@cron.command("delete", short_help="Delete a job that was added.")
@_id
@json_option
@with_client
def delete(client: ControlClient, job: str, *, as_json: bool) -> None:
    """Delete a job that was added; a run in progress ends normally."""
    deleted = client.call("cron.delete", {"id": job})
    print_answer(deleted, f"{clean(deleted['id'])} is deleted", as_json=as_json)


@cron.command("enable")
@_id
@json_option
@with_client
def enable_job(client: ControlClient, job: str, *, as_json: bool) -> None:
    """Have an added job run on its schedule again; times that passed while it was off are not caught up."""
    enabled = client.call("cron.enable", {"id": job})
    print_answer(enabled, f"{clean(enabled['id'])} is enabled: {clean(enabled['when'])}", as_json=as_json)


@cron.command("disable")
@_id
@json_option
@with_client
def disable_job(client: ControlClient, job: str, *, as_json: bool) -> None:
    """Keep an added job off its schedule; `pool cron run` still runs it."""
    disabled = client.call("cron.disable", {"id": job})
    print_answer(disabled, f"{clean(disabled['id'])} is disabled", as_json=as_json)


@cron.command("run", short_help="Run a job now, whether it is due or not.")
@_id
@json_option
@with_client
def run_job_now(client: ControlClient, job: str, *, as_json: bool) -> None:
    """Run a job now, whether it is due or not; does not wait for its end.

    Prints whether its run begins, is queued, or wakes the agent. Exits with 1 when it is refused.
    """
    started = client.call("cron.run", {"id": job})
    print_answer(started, job_started_text(started), as_json=as_json)
