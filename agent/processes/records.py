"""Background commands as records of a transcript, from which the conversation's next worker restores them."""

import msgspec

from agent.processes.output import Output
from agent.processes.session import TAIL_CHARS, Session
from agent.processes.spawn import Command
from agent.processes.stdin import Stdin
from wire.entries import ExecRecord

__all__ = ["cleared", "record_of", "session_of"]


def record_of(session: Session) -> ExecRecord:
    """The state of a command; its output only after its end."""
    record = ExecRecord(
        id=session.id,
        command=session.command.line,
        cwd=session.command.cwd,
        pid=session.pid,
        started_at=session.started_at,
    )
    if not session.exited:
        return record
    tail = session.output.tail(TAIL_CHARS)
    return msgspec.structs.replace(
        record,
        ended_at=session.ended_at,
        exit_code=session.exit_code,
        exit_signal=session.exit_signal,
        timed_out=session.timed_out,
        lost=session.lost,
        tail=tail,
        unseen=min(session.output.unseen, len(tail)),
        is_cut=session.output.truncated or session.output.size > len(tail),
    )


def cleared(session: Session) -> ExecRecord:
    """The record of a command that is not to be restored."""
    return msgspec.structs.replace(record_of(session), tail="", unseen=0, cleared=True)


def session_of(record: ExecRecord, *, scope_key: str, session_key: str, now: float) -> Session:
    """A command of an earlier worker; one without an end died with it. ``now``: Unix time in seconds."""
    session = Session(
        record.id,
        Command(line=record.command, cwd=record.cwd, environment={}),
        pid=record.pid,
        stdin=Stdin(None, is_terminal=False, why="the command has ended"),
        output=Output.of_tail(record.tail, unseen=record.unseen, is_cut=record.is_cut),
        scope_key=scope_key,
        session_key=session_key,
    )
    session.started_at = record.started_at
    session.ended_at = now if record.ended_at is None else record.ended_at
    session.exit_code, session.exit_signal = record.exit_code, record.exit_signal
    session.timed_out, session.lost = record.timed_out, record.lost or record.ended_at is None
    session.backgrounded = session.exit_notified = True
    session.ended.set()
    return session
