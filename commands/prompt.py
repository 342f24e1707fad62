"""``pool prompt``, ``wait``, ``steer``, ``abort``, ``delegate``; following a run."""

import math
import os
import sys
import time
import uuid
from typing import Any

import click

from commands.decisions import decide_on
from commands.event_text import command_line, resumption_text
from commands.options import (
    agent_option,
    as_seconds,
    connection_flags,
    json_option,
    print_answer,
    print_json,
    read_text,
    required_session,
    role_option,
    session_option,
    with_client,
)
from commands.prompt_approvals import LineApprovals
from commands.prompt_view import PromptJsonView, PromptTextView, PromptView
from commands.run_ends import check_outcome
from doors.control.client import ControlClient
from errors import (
    NoSupervisor,
    PoolClosed,
    PoolError,
    RequestTimeout,
    RunInterrupted,
)
from wire.messages import QueueMode, omit_none
from wire.traceparent import trace_members

_run_options = (
    session_option("The session; created if it does not exist.", required=True),
    agent_option(),
    role_option(),
    click.option(
        "--priority",
        type=click.IntRange(-1000, 1000),
        metavar="N",
        help="Higher is served first (default: by the source of the session's messages, 5).",
    ),
    click.option(
        "--timeout",
        callback=as_seconds,
        metavar="TIME",
        help="Limit for waiting and running together (agents.defaults.timeout_seconds).",
    ),
    click.option("--lane", metavar="NAME", help="Concurrency lane (default: main)."),
    click.option(
        "--queue",
        type=click.Choice([mode.value for mode in QueueMode]),
        help="Queue mode when the session is busy (gateway.queue.mode).",
    ),
    click.option("--key", metavar="KEY", help="Idempotency key: the same key means the same run."),
)


def _with_run_options(command: Any) -> Any:
    for option in reversed(_run_options):
        command = option(command)
    return command


@click.command()
@_with_run_options
@click.option("--detach", is_flag=True, help="Print the run's id and exit; `pool wait` gets its answer.")
@click.option("--thinking", is_flag=True, help="Show the agent's reasoning too.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, the outcome last.")
@click.argument("text")
@with_client
def prompt(client: ControlClient, text: str, *, detach: bool, thinking: bool, as_json: bool, **options: Any) -> None:
    """Send TEXT (- reads stdin) to a session and stream the answer."""
    params = run_params(read_text(text, sys.stdin.buffer), **options)
    place = connection_flags()
    if detach:
        accepted = client.call("agent", params)
        print_answer(accepted, accepted["run_id"], as_json=as_json)
    elif as_json:
        follow_prompt(client, params, PromptJsonView(sys.stdout), place=place)
    else:
        view = PromptTextView(sys.stdout, sys.stderr, os.environ, thinking=thinking, place=place)
        if sys.stdin.isatty() and sys.stderr.isatty():
            view.approvals = LineApprovals(
                sys.stdin.fileno(), decide_on(client.path, params["session"], place), view.say
            )
        follow_prompt(client, params, view, place=place)


@click.command()
@click.argument("run_id", metavar="RUN")
@session_option("The run's session, if the id is ambiguous.")
@click.option("--timeout", callback=as_seconds, metavar="TIME", help="Stop waiting after this; 0 checks once.")
@json_option
@with_client
def wait(client: ControlClient, run_id: str, session: str | None, timeout: float | None, *, as_json: bool) -> None:
    """Wait for a run to end and print its answer; fails as the run failed."""
    _show_outcome(wait_for_run(client, run_id, session, timeout, place=connection_flags()), as_json=as_json)


@click.command()
@required_session
@click.argument("text")
@json_option
@with_client
def steer(client: ControlClient, session: str, text: str, *, as_json: bool) -> None:
    """Send TEXT (- reads stdin) into the session's running turn."""
    answer = client.call("steer", {"session": session, "text": read_text(text, sys.stdin.buffer)})
    print_answer(answer, "steered", as_json=as_json)


@click.command()
@required_session
@click.option("--run", metavar="RUN", help="A certain run, queued or running (default: the running one).")
@json_option
@with_client
def abort(client: ControlClient, session: str, run: str | None, *, as_json: bool) -> None:
    """End a run of the session; exit code 1 when there is none."""
    answer = client.call("abort", omit_none(session=session, run=run))
    if not answer["aborted"]:
        which = "no run is in its turn" if run is None else f"the run {run} does not go on"
        raise PoolError(f"{which} in the session {session}", session=session)
    print_answer(answer, "aborted", as_json=as_json)


@click.command()
@required_session
@agent_option("The agent for the task.", required=True)
@click.option("--detach", is_flag=True, help="Do not wait; the session receives the outcome.")
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="Limit for the task (agents.defaults.timeout_seconds)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer.")
@click.argument("task")
@with_client
def delegate(client: ControlClient, task: str, *, detach: bool, as_json: bool, **options: Any) -> None:
    """Delegate TASK (- reads stdin) of a session to another agent and print its answer."""
    params = omit_none(**options, task=read_text(task, sys.stdin.buffer), mode="async" if detach else "sync")
    if detach:
        answer = client.call("delegate", params)
        print_answer(answer, answer["run_id"], as_json=as_json)
    else:
        _show_outcome(client.call("delegate", params, timeout=None), as_json=as_json)


def _show_outcome(outcome: dict[str, Any], *, as_json: bool) -> None:
    """Print how a run ended. Raises PoolError of the kind that it failed with."""
    if as_json:
        print_json(outcome)
    else:
        if resumption := resumption_text(outcome.get("strategy")):
            click.echo(f"! {resumption}", err=True)
        PromptTextView(sys.stdout, sys.stderr, {}).end(outcome)
    check_outcome(outcome)


_ABORT_TIMEOUT = 5.0
_ANSWER_GRACE = 10.0
_POLL_SECONDS = 600.0
_SLOW_START = 0.5
"""A run that has not begun after this time says on a terminal why it waits."""
_LOOK_SECONDS = 2.0
"""How often that is asked for."""


def run_params(text: str, *, key: str | None = None, **options: Any) -> dict[str, Any]:
    """The parameters of ``prompt`` and ``agent``; ``key`` names the run, else its name is random.

    The run is part of the trace that the environment names (TRACEPARENT, TRACESTATE), as in a command of an agent.
    """
    trace = trace_members(os.environ.get("TRACEPARENT", ""), os.environ.get("TRACESTATE", ""))
    return omit_none(**options, text=text, run=uuid.uuid4().hex if key is None else key, **trace)


def follow_prompt(
    client: ControlClient, params: dict[str, Any], view: PromptView, *, place: str = ""
) -> dict[str, Any]:
    """Run a prompt, draw it as it comes, return its outcome. Raises PoolError where the run did not end well.

    ``params`` of the method ``prompt``; its ``run`` is what the run is called. Ctrl-C aborts this run, then goes on
    its way. ``place``: the options by which shown commands find the supervisor.
    """
    timeout = params.get("timeout")  # enforced by the supervisor; only one that is stopped exceeds the grace
    stream = client.stream("prompt", params, timeout=timeout + _ANSWER_GRACE if timeout else None)
    is_known = has_begun = False
    look_at = time.monotonic() + _SLOW_START
    try:
        if view.tells_waits:
            stream.wakes_at = look_at
        for batch in stream:
            is_known = is_known or bool(batch)
            for pushed in batch:
                has_begun = has_begun or b'"type":"run:start"' in bytes(pushed.data.events)
                view.show(pushed.data.events)
                if _awaits_person(bytes(pushed.data.events)):
                    stream.remove_deadline()  # the run's clock stands still until the question is answered
            if view.tells_waits and not has_begun:
                if not batch and is_known:
                    view.waits(client.call("sessions.get", {"session": params["session"]}))
                    look_at = time.monotonic() + _LOOK_SECONDS
                stream.wakes_at = look_at
    except KeyboardInterrupt:
        view.close()
        with ControlClient(client.path) as other:  # the interrupted connection may have stopped in mid-line
            run = {"session": params["session"], "run": params["run"]}
            aborted = other.call("abort", run, timeout=_ABORT_TIMEOUT)["aborted"]
        click.echo("the run is aborted" if aborted else "the run does not go on any more", err=True)
        raise
    except PoolError as exc:
        is_gone = _is_supervisor_lost(exc, is_known=is_known)
        error = _lost_run_error(params["run"], params["session"], place, has_begun=has_begun) if is_gone else exc
        view.fail(error)
        raise error from exc
    outcome: dict[str, Any] = stream.result
    view.end(outcome)
    check_outcome(outcome)
    return outcome


def wait_for_run(
    client: ControlClient, run_id: str, session: str | None, timeout: float | None, *, place: str = ""
) -> dict[str, Any]:
    """The outcome of a run, however it ended. ``timeout`` in seconds, 0 = as it stands now, None = until it has ended.

    ``place``: the options by which shown commands find the supervisor. Raises RequestTimeout when it has not ended by
    then, RunInterrupted when the supervisor goes away before, and UsageError for a run that is not known.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        patience = max(0.0, min(deadline - time.monotonic(), _POLL_SECONDS))
        params = omit_none(run_id=run_id, session=session, timeout_ms=round(patience * 1000))
        try:
            outcome: dict[str, Any] = client.call("agent.wait", params, timeout=patience + _ANSWER_GRACE)
        except PoolError as exc:
            raise _lost_run_error(run_id, session, place) if _is_supervisor_lost(exc, is_known=True) else exc from exc
        if outcome["status"] != "timeout":
            return outcome
        if time.monotonic() >= deadline:
            raise RequestTimeout(f"the run {run_id} has not ended yet; it goes on", run_id=run_id)


def _awaits_person(events: bytes) -> bool:
    """Whether one of these envelopes is a question; inside a text, quotation marks are escaped."""
    return b'"type":"permission_required"' in events or b'"type":"ui_request"' in events


def _is_supervisor_lost(error: PoolError, *, is_known: bool) -> bool:
    """Whether only the supervisor is gone: one that stops cuts its listeners short, and the run is kept."""
    is_closed = isinstance(error, PoolClosed) and (is_known or "cut_short" in error.details)
    return is_closed or isinstance(error, NoSupervisor)


def _lost_run_error(run_id: str, session: str | None, place: str, *, has_begun: bool = False) -> RunInterrupted:
    """The error for a run whose supervisor is gone: what becomes of the run, and the command to query it."""
    look = command_line("wait", run_id, session=session, place=place)
    state = (
        "the supervisor went away in the run's turn; what the run did until then is in the conversation"
        if has_begun
        else "the supervisor went away before the run had ended; a run that still waits is kept and goes on when the "
        "supervisor is back"
    )
    return RunInterrupted(
        f"{state}; get its outcome with: {look}",
        run_id=run_id,
        session=session,
    )
