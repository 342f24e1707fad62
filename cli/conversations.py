"""Commands that take part in a session, which is a conversation, by key."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from cli.options import as_seconds, given_place, json_option, session_option, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["abort", "approve", "delegate", "deny", "prompt", "steer", "wait"]

_QUEUE_MODES = ("steer", "followup", "collect", "interrupt")

_run_options = (
    click.option("-s", "--session", required=True, metavar="KEY", help="The session; made when it is new."),
    click.option("-a", "--agent", metavar="NAME", help="Which agent definition (main)."),
    click.option("-r", "--role", metavar="NAME", help="In which role (default)."),
    click.option(
        "--priority",
        type=click.IntRange(-1000, 1000),
        metavar="N",
        help="Higher is served first; else by where the session's messages come from (5).",
    ),
    click.option(
        "--timeout",
        callback=as_seconds,
        metavar="TIME",
        help="For waiting and running together (agents.defaults.timeout_seconds).",
    ),
    click.option("--lane", metavar="NAME", help="Which lane bounds it besides (main)."),
    click.option(
        "--queue",
        type=click.Choice(_QUEUE_MODES),
        help="When the session is busy (gateway.queue.mode).",
    ),
    click.option("--key", metavar="KEY", help="Idempotency key: given again, it means the same run."),
)


def _with_run_options(command: Any) -> Any:
    for option in reversed(_run_options):
        command = option(command)
    return command


@click.command(short_help="Say something and stream the answer.")
@_with_run_options
@click.option("--detach", is_flag=True, help="Print the run's id and leave; see `pool wait`.")
@click.option("--thinking", is_flag=True, help="Show the agent's reasoning too.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, the outcome last.")
@click.argument("text")
@with_client
def prompt(client: "ControlClient", text: str, *, detach: bool, thinking: bool, as_json: bool, **options: Any) -> None:
    """Say TEXT (or what stdin holds, with -) in a session and stream the answer."""
    from doors.outcomes import show_started
    from doors.prompt_views import JsonView, TextView
    from doors.prompting import follow_prompt, read_text, run_params

    params = run_params(read_text(text, sys.stdin.buffer), **options)
    place = given_place()
    if detach:
        show_started(client, params, as_json=as_json)
    elif as_json:
        follow_prompt(client, params, JsonView(sys.stdout), place=place)
    else:
        view = TextView(sys.stdout, sys.stderr, os.environ, thinking=thinking, place=place)
        follow_prompt(client, params, view, place=place)


@click.command(short_help="Wait for a run to end and print its answer.")
@click.argument("run_id", metavar="RUN")
@click.option("-s", "--session", metavar="KEY", help="The run's session, where several have a run of that name.")
@click.option("--timeout", callback=as_seconds, metavar="TIME", help="Give up waiting after this; 0 only looks.")
@json_option
@with_client
def wait(client: "ControlClient", run_id: str, session: str | None, timeout: float | None, *, as_json: bool) -> None:
    """Wait for a run to end and print its answer; fails as the run failed."""
    from doors.outcomes import show_outcome
    from doors.prompting import wait_for_run

    outcome = wait_for_run(client, run_id, session, timeout, place=given_place())
    show_outcome(outcome, as_json=as_json)


@click.command(short_help="Put a text into the turn that is running.")
@session_option
@click.argument("text")
@with_client
def steer(client: "ControlClient", session: str, text: str) -> None:
    """Put TEXT (or what stdin holds, with -) into the session's running turn."""
    from doors.prompting import read_text

    client.call("steer", {"session": session, "text": read_text(text, sys.stdin.buffer)})
    click.echo("steered")


@click.command(short_help="End a run.")
@session_option
@click.option("--run", metavar="RUN", help="This run, also while it waits; else the one in its turn.")
@with_client
def abort(client: "ControlClient", session: str, run: str | None) -> None:
    """End a run of the session; 1 when there is none."""
    from doors.requests import abort_run

    abort_run(client, session, run)
    click.echo("aborted")


@click.command(short_help="Let a tool call go on that waits for approval.")
@click.argument("call_id", metavar="CALL")
@click.option("-s", "--session", metavar="KEY", help="The call's session, where several have a call of that name.")
@click.option("--note", metavar="TEXT", help="Note for the agent.")
@click.option("--seen", metavar="WORD", help="From the end of `pool approvals show CALL`, for a long call.")
@with_client
def approve(client: "ControlClient", call_id: str, session: str | None, **options: str | None) -> None:
    """Approve a pending tool call."""
    from doors.requests import decide

    decide(client, call_id, "allow", session, given_place(), **options)
    click.echo(f"{call_id} is allowed")


@click.command(short_help="Refuse a tool call that waits for approval.")
@click.argument("call_id", metavar="CALL")
@click.option("-s", "--session", metavar="KEY", help="The call's session, where several have a call of that name.")
@click.option("--note", metavar="TEXT", help="Reason, for the agent.")
@with_client
def deny(client: "ControlClient", call_id: str, session: str | None, **options: str | None) -> None:
    """Deny a pending tool call."""
    from doors.requests import decide

    decide(client, call_id, "deny", session, **options)
    click.echo(f"{call_id} is denied")


@click.command(short_help="Give a task to another agent and print its answer.")
@session_option
@click.option("-a", "--agent", required=True, metavar="NAME", help="The agent that is to do it.")
@click.option("--detach", is_flag=True, help="Leave; the outcome is told to the session.")
@click.option("--timeout", callback=as_seconds, metavar="TIME", help="For the task (agents.defaults.timeout_seconds).")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer.")
@click.argument("task")
@with_client
def delegate(client: "ControlClient", task: str, *, detach: bool, as_json: bool, **options: Any) -> None:
    """Give TASK (or what stdin holds, with -) of a session to another agent and print its answer."""
    from doors.outcomes import show_delegated
    from doors.prompting import read_text
    from doors.requests import given

    mode = "async" if detach else "sync"
    show_delegated(client, given(**options, task=read_text(task, sys.stdin.buffer), mode=mode), as_json=as_json)
