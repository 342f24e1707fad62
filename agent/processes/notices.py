"""What is told when a background command has ended."""

import msgspec

from agent.processes.session import Session

__all__ = ["ExitNotice", "notice_of"]

_SHOWN_CHARS = 400
_ID_CHARS = 8


class ExitNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of an event ``exec_exit``: whose command, its end in a line, and either its code or its signal."""

    session_id: str
    session_key: str
    summary: str
    exit_code: int | None = None
    signal: str | None = None


def notice_of(session: Session) -> ExitNotice:
    """The notice of a session that has ended."""
    how = f"code {session.exit_code}" if session.exit_signal is None else f"signal {session.exit_signal}"
    summary = f"Exec {session.status} ({session.id[:_ID_CHARS]}, {how})"
    said = " ".join(session.output.tail(10 * _SHOWN_CHARS).split())[-_SHOWN_CHARS:]
    if said:
        summary = f"{summary} :: {said}"
    return ExitNotice(session.id, session.session_key, summary, session.exit_code, session.exit_signal)
