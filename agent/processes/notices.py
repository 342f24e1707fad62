"""What is told when a background command has ended."""

from agent.processes.session import Session
from wire.messages import ExecExit

__all__ = ["notice_of"]

_SHOWN_CHARS = 400
_ID_CHARS = 8


def notice_of(session: Session) -> ExecExit:
    """The notice of a session that has ended."""
    how = f"code {session.exit_code}" if session.exit_signal is None else f"signal {session.exit_signal}"
    summary = f"Exec {session.status} ({session.id[:_ID_CHARS]}, {how})"
    said = " ".join(session.output.tail(10 * _SHOWN_CHARS).split())[-_SHOWN_CHARS:]
    if said:
        summary = f"{summary} :: {said}"
    return ExecExit(session.id, summary, session.session_key, session.exit_code, session.exit_signal)
