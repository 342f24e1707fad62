"""Requests of commands that print no table: stop, drain, abort, decide, reset, delete, with their own error texts."""

import sys
from typing import Any

import msgspec

from commands.event_text import show_command
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import PoolError, RequestTimeout, UsageError, WorkerRefused
from wire.messages import omit_none
from wire.terminal import clean


def stop_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Ask the supervisor to stop and wait for its end. Raises RequestTimeout when it takes longer than ``timeout``."""
    for what in client.call("shutdown")["waits_for"]:
        sys.stderr.write(f"waits for {clean(what)}\n")
    if not client.wait_closed(timeout):
        raise RequestTimeout(f"the supervisor is still ending its turns after {timeout:g} s; it goes on stopping")


def drain_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Drain the pool and wait for that. Raises RequestTimeout when turns are left at the end of ``timeout``."""
    if not client.call("drain", {"timeout": timeout}, timeout=None)["drained"]:
        raise RequestTimeout("turns are still running; the pool goes on draining")


def abort_run(client: ControlClient, session: str, run: str | None) -> None:
    """End a run of the session. Raises PoolError when there is none to end."""
    if not client.call("abort", omit_none(session=session, run=run))["aborted"]:
        which = "no run is in its turn" if run is None else f"the run {run} does not go on"
        raise PoolError(f"{which} in the session {session}", session=session)


def decide(
    client: ControlClient, call_id: str, decision: str, session: str | None, place: str = "", /, **more: str | None
) -> None:
    """Answer ``allow`` or ``deny`` to a tool call that waits for a person; ``more``: its ``note``, what was ``seen``.

    ``place``: the options by which shown commands find the supervisor.

    Raises UsageError for a call that is longer than what was shown of it, with the command that shows all.
    """
    try:
        client.call(
            "decide",
            omit_none(call_id=call_id, decision=decision, session=session, **more),
            timeout=SLOW_ANSWER_SECONDS,
        )
    except WorkerRefused as exc:
        if exc.details.get("worker_code") != "not_shown":
            raise
        look = show_command({"call": {"id": call_id}}, session or "", place)
        raise UsageError(f"{exc.message}; this shows it, and how to approve it: {look}") from exc


def reset_session(client: ControlClient, key: str, *, force: bool) -> list[str]:
    """Reset the session; a running turn is ended first. Returns the background commands that ended with it.

    Raises UsageError, with ``running`` in its details, where there are any and ``force`` is not given.
    """
    return _ended_commands(client.call("sessions.reset", {"session": key, "force": force}, timeout=SLOW_ANSWER_SECONDS))


def delete_session(client: ControlClient, key: str) -> list[str]:
    """Delete the session; a running turn is ended first. Returns the background commands that ended with it."""
    return _ended_commands(client.call("sessions.delete", {"session": key}, timeout=SLOW_ANSWER_SECONDS))


def _ended_commands(result: Any) -> list[str]:
    return [str(name) for name in result["ended"]]


def message_source(*, chat_type: str, sender_id: str, chat_id: str | None, **others: Any) -> dict[str, Any]:
    """The source of a message for ``route``. A direct message's chat is the sender's, unless it is named."""
    if chat_id is None and chat_type != "dm":
        raise UsageError(f"a message of a {chat_type} needs --chat: which one?")
    others["member_role_ids"] = list(others.get("member_role_ids", ())) or None
    return omit_none(chat_type=chat_type, sender_id=sender_id, chat_id=chat_id or sender_id, **others)


def print_json(value: Any) -> None:
    """One JSON document on stdout, indented."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()
