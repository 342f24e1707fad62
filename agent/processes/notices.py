"""What is told when a background command has ended."""

from agent.processes.session import Session
from wire.messages import ExecExit

__all__ = ["notice_of"]

_SHOWN_CHARS = 400


def notice_of(session: Session) -> ExecExit:
    """The notice of a session that has ended; its id is the one that the tool ``process`` takes."""
    summary = f"Exec {session.status} ({session.id}, {session.state})"
    said = " ".join(session.output.tail(10 * _SHOWN_CHARS).split())[-_SHOWN_CHARS:]
    if said:
        summary = f"{summary} :: {said}"
    return ExecExit(session.id, summary, session.session_key, session.exit_code, session.exit_signal, session.timed_out)
