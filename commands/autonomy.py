"""Heartbeat and cron commands.

``pool heartbeat``: have an agent look after things now, and see how all of them stand.

``pool cron``: jobs that are due by the clock.

What the commands about heartbeats and scheduled jobs ask the supervisor, and what they print of the answer.
"""

import sys
from typing import Any

import click

from commands.autonomy_view import beat_text, job_started_text
from commands.options import connection_options, json_option, with_client
from commands.output import open_console, print_json
from commands.requests import omit_none
from doors.control.client import ControlClient
from wire.terminal import clean

_EPILOG = """\b
Heartbeats at an interval are off; to turn them on, for all agents or one:
  pool config set agents.defaults.heartbeat.every 30m
  pool config set agents.main.heartbeat.every 1h
  pool reload
Events, such as the end of a background command, wake agents in any case.
To report events with the session's next turn instead:
  pool config set agents.defaults.heartbeat.wake false"""


@click.group(invoke_without_command=True, epilog=_EPILOG)
@connection_options
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
    from commands.output import show_result

    show_result(client, "heartbeat.status", as_json=as_json)


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
    ctx.exit(0 if run_beat(client, agent, session, as_json=as_json) else 1)


_ADD_EPILOG = """\b
Examples:
  pool cron add --at 20m "Remind me to look at the oven."
  pool cron add --at 2031-05-01T08:00 --agent ops "Renew the certificate."
  pool cron add --every 30m --isolated --to webhook:ops \\
    "Check the build. Answer HEARTBEAT_OK when it is green."
  pool cron add --id standup --cron "0 9 * * mon-fri" --tz Europe/Berlin \\
    "Prepare the stand-up."
  pool cron add --id standup --cron "30 9 * * mon-fri" --replace - < job.txt"""

_id = click.argument("job", metavar="JOB")


@click.group(invoke_without_command=True)
@connection_options
@json_option
@click.pass_context
def cron(ctx: click.Context, /, **options: str | bool | None) -> None:
    """Scheduled jobs: add, list, look at, remove, run one now.

    A job is a message in its session (mode main; the agent is woken for it), or runs in a session of its own, which
    begins empty each time unless it is kept, and the agent's answer is delivered (mode isolated). Jobs of the settings
    file, [cron.jobs.NAME], are listed too.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_jobs, after="", **options)


@cron.command("list")
@click.option("--after", default="", metavar="JOB", help="Those whose names follow this one.")
@json_option
@with_client
def list_jobs(client: "ControlClient", after: str, *, as_json: bool) -> None:
    """List the jobs: when each is due, and what came of it last."""
    from commands.output import show_result

    show_result(client, "cron.list", {"after": after} if after else None, as_json=as_json)


@cron.command("get")
@_id
@json_option
@with_client
def get(client: "ControlClient", job: str, *, as_json: bool) -> None:
    """Show all of one job, with what came of its latest runs."""
    from commands.output import show_result

    show_result(client, "cron.get", {"id": job}, as_json=as_json)


@cron.command("add", short_help="Have a job done that is due by the clock.", epilog=_ADD_EPILOG)
@click.option("--id", "name", metavar="JOB", help="What it is called: a-z, 0-9, _ and -; made when it is left out.")
@click.option("--cron", "expression", metavar="EXPR", help='Due by a cron expression: "0 9 * * mon-fri".')
@click.option("--every", metavar="SPAN", help="Due every so often: 30m, 2h, 1d.")
@click.option("--at", metavar="TIME", help="Due once: 2031-05-01T08:00, or a span from now: 20m.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron and --at: Europe/Berlin. Else this machine's.")
@click.option("--agent", metavar="NAME", help="Who does it (else router.default_agent).")
@click.option("-s", "--session", metavar="KEY", help="The session it belongs to; else the agent's own.")
@click.option("--isolated", is_flag=True, help="Do it in a session of its own; its answer is delivered.")
@click.option("--to", "delivery", metavar="TARGET", help="Isolated: who gets the answer: last, none, webhook:NAME, ...")
@click.option("--timeout", metavar="SPAN", help="Isolated: how long a run may take (10m).")
@click.option("--keep-conversation", is_flag=True, help="Isolated: keep the session from run to run.")
@click.option("--keep/--delete", "keep", default=None, help="Whether it stays after a run; else unless due only once.")
@click.option("--replace", is_flag=True, help="In place of the added job of that name.")
@json_option
@click.argument("text")
@with_client
def add(
    client: "ControlClient",
    *,
    text: str,
    keep: bool | None,
    keep_conversation: bool,
    isolated: bool,
    replace: bool,
    as_json: bool,
    **said: Any,
) -> None:
    """Have an agent do TEXT (or what stdin holds, with -) by the clock: exactly one of --cron, --every and --at."""
    from commands.prompt import read_text

    said |= {"mode": "isolated" if isolated else None, "replace": replace or None}
    said |= {"keep": keep_conversation or None}
    said |= {"delete_after_run": None if keep is None else not keep}
    said |= {"id": said.pop("name"), "cron": said.pop("expression"), "text": read_text(text, sys.stdin.buffer)}
    add_job(client, said, as_json=as_json)


@cron.command("remove", short_help="Drop a job that was added.")
@_id
@json_option
@with_client
def remove(client: "ControlClient", job: str, *, as_json: bool) -> None:
    """Drop a job that was added; a run of it that is under way comes to its end."""
    remove_job(client, job, as_json=as_json)


@cron.command("run", short_help="Run a job now, whether it is due or not.")
@_id
@json_option
@with_client
def run_job_now(client: "ControlClient", job: str, *, as_json: bool) -> None:
    """Run a job now, whether it is due or not; does not wait for its end.

    Says what happens: its run begins or waits, or its agent is woken. Exits with 1 when it is refused.
    """
    run_job(client, job, as_json=as_json)


def run_beat(client: ControlClient, agent: str | None, session: str | None, *, as_json: bool) -> bool:
    """Have an agent beat, and print what came of it; whether there was a beat and it went well."""
    report = client.call("heartbeat.run", omit_none(agent=agent, session=session), timeout=None)
    if as_json:
        print_json(report)
    else:
        open_console().print(beat_text(report))
    return report["outcome"] not in ("skipped", "failed")


def add_job(client: ControlClient, said: dict[str, Any], *, as_json: bool) -> None:
    """Keep a job, and print when it is due, and why it would not run as things stand."""
    job = client.call("cron.add", omit_none(**said))
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{clean(job['id'])}: {clean(job['when'])}\n")
        if job["problem"] is not None:
            sys.stderr.write(f"warning: {clean(job['problem'])}\n")


def remove_job(client: ControlClient, name: str, *, as_json: bool) -> None:
    """Drop a job, and say so."""
    job = client.call("cron.remove", {"id": name})
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{clean(job['id'])} is removed\n")


def run_job(client: ControlClient, name: str, *, as_json: bool) -> None:
    """Run a job, and say what happens."""
    job = client.call("cron.run", {"id": name})
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{job_started_text(job)}\n")
