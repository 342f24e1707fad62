"""``pool approve`` and ``pool deny``; the same decisions beside a run that is followed."""

from pathlib import Path
from typing import Any

import click

from commands.completion import complete_calls
from commands.event_text import show_command
from commands.options import connection_flags, json_option, print_answer, session_option, with_client
from commands.prompt_approvals import Decide
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import UsageError, WorkerRefused
from wire.messages import omit_none

_call = click.argument("call_id", metavar="CALL", shell_complete=complete_calls)
_session = session_option("The call's session, if the id is ambiguous.")
_answer_option = click.option(
    "--option", "option_id", metavar="ID", help="An answer of the agent's own; see `pool approvals show CALL`."
)


@click.command()
@_call
@_session
@click.option("--note", metavar="TEXT", help="Note for the agent.")
@_answer_option
@click.option("--seen", metavar="WORD", help="From the end of `pool approvals show CALL`, for a long call.")
@json_option
@with_client
def approve(client: ControlClient, call_id: str, *, as_json: bool, **more: str | None) -> None:
    """Approve a pending tool call."""
    _print(call_id, _decide(client, connection_flags(), call_id=call_id, decision="allow", **more), as_json=as_json)


@click.command()
@_call
@_session
@click.option("--note", metavar="TEXT", help="Reason, for the agent.")
@_answer_option
@json_option
@with_client
def deny(client: ControlClient, call_id: str, *, as_json: bool, **more: str | None) -> None:
    """Deny a pending tool call."""
    _print(call_id, _decide(client, "", call_id=call_id, decision="deny", **more), as_json=as_json)


def decide_on(path: Path, session: str, place: str) -> Decide:
    """Decisions about the session's calls, each on a connection of its own: that of the run is being read.

    Nothing is printed: the run's events show each decision, and stdout belongs to the answer.
    """

    def decide(call_id: str, decision: str, note: str | None) -> None:
        with ControlClient(path) as client:
            _decide(client, place, call_id=call_id, decision=decision, session=session, note=note)

    return decide


def _decide(client: ControlClient, place: str, **params: str | None) -> dict[str, Any]:
    """The answer to ``decide`` with these parameters; ``place``: the options by which commands find the supervisor.

    Raises UsageError for a call that is longer than what was shown of it, with the command that shows all.
    """
    try:
        answer: dict[str, Any] = client.call("decide", omit_none(**params), timeout=SLOW_ANSWER_SECONDS)
    except WorkerRefused as exc:
        if exc.details.get("worker_code") != "not_shown":
            raise
        look = show_command({"call": {"id": params["call_id"]}}, params.get("session") or "", place)
        raise UsageError(f"{exc.message}; this shows it, and how to approve it: {look}") from exc
    return answer


def _print(call_id: str, answer: dict[str, Any], *, as_json: bool) -> None:
    done = "allowed" if answer["decision"] == "allow" else "denied"
    print_answer(answer, f"{call_id} is {done}", as_json=as_json)
