"""What is printed of a run that is not followed: its id when it begins, its answer when it has ended."""

import sys
from typing import Any

from doors.console import print_json
from doors.control_client import ControlClient
from doors.prompt_views import TextView
from doors.prompting import check_outcome

__all__ = ["show_delegated", "show_outcome", "show_started"]


def show_started(client: ControlClient, params: dict[str, Any], *, as_json: bool) -> None:
    """Start a run and leave it; print its id, or all that the supervisor says of its acceptance."""
    accepted = client.call("agent", params)
    if as_json:
        print_json(accepted)
    else:
        sys.stdout.write(f"{accepted['run_id']}\n")


def show_outcome(outcome: dict[str, Any], *, as_json: bool) -> None:
    """Print how a run ended. Raises PoolError of the kind that it failed with."""
    if as_json:
        print_json(outcome)
    else:
        TextView(sys.stdout, sys.stderr, {}).end(outcome)
    check_outcome(outcome)


def show_delegated(client: ControlClient, params: dict[str, Any], *, as_json: bool) -> None:
    """Give a task to another agent; print its answer, or the id of the run where nobody waits for it."""
    if params["mode"] == "async":
        answer = client.call("delegate", params)
        if as_json:
            print_json(answer)
        else:
            sys.stdout.write(f"{answer['run_id']}\n")
    else:
        show_outcome(client.call("delegate", params, timeout=None), as_json=as_json)
