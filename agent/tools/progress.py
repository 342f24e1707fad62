"""Waiting for a command, and telling how it stands meanwhile."""

import trio

from agent.processes.session import Session
from agent.tools.base import Report

_INTERVAL = 0.05


async def wait_for_end(session: Session, report: Report, seconds: float) -> None:
    """Return when it has ended, or after so many seconds; what it says is told, at most 20 times a second.

    All that it has said by then is told, too. A nursery makes a group of what cancels this.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell_progress, session, report)
        with trio.move_on_after(seconds):
            await session.ended.wait()
        nursery.cancel_scope.cancel()
    if session.fresh.is_set():
        _tell(session, report)


async def _tell_progress(session: Session, report: Report) -> None:
    while True:
        await session.fresh.wait()
        _tell(session, report)
        await trio.sleep(_INTERVAL)


def _tell(session: Session, report: Report) -> None:
    session.fresh = trio.Event()
    report(session.details())
