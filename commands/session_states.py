"""What sessions are doing, in the words of ``wire.session_state``, from the documents of the supervisor. Pure."""

from typing import Any

from wire.session_state import session_state

Record = dict[str, Any]

STATE_STYLES = {"working": "green", "waiting": "yellow", "approval": "yellow", "failed": "red", "idle": "dim"}


def listed_state(session: Record) -> str:
    """Of a session of ``sessions.list`` or ``sessions.get``."""
    waits = session.get("waits_for") is not None
    return session_state(str(session["state"]), waits=waits, asks=bool(session.get("pending_permissions")))


def states_in_status(status: Record) -> dict[str, str]:
    """Of each session of the status, by its key; ``failed``: its conversation cannot be opened."""
    asking = {asked["session"] for asked in status["gateway"]["permissions"]}
    at_work = {worker["session"] for worker in status["workers"] if worker["turn_age"] is not None}
    return {session["key"]: _pooled_state(session, asking, at_work) for session in status["sessions"]}


def _pooled_state(session: Record, asking: set[str], at_work: set[str | None]) -> str:
    is_working = session["key"] in at_work
    if session["failed"] and not is_working and session["key"] not in asking:
        return "failed"
    state = "WORKING" if is_working else "READY"
    return session_state(state, waits=bool(session["waiting"]) and not is_working, asks=session["key"] in asking)
