"""Waiting for a command, and telling how it stands meanwhile."""

import trio

from agent.processes.session import ProcessSession
from agent.tools.base import Report

_INTERVAL = 0.05


async def wait_for_end(session: ProcessSession, report: Report, seconds: float) -> None:
    """Return when it has ended, or after so many seconds; what it says is told, at most 20 times a second.

    All that it has said by then is told, too. A nursery makes a group of what cancels this.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report_progress, session, report)
        with trio.move_on_after(seconds):
            await session.ended.wait()
        nursery.cancel_scope.cancel()
    if session.has_output.is_set():
        _report_now(session, report)


async def _report_progress(session: ProcessSession, report: Report) -> None:
    while True:
        await session.has_output.wait()
        _report_now(session, report)
        await trio.sleep(_INTERVAL)


def _report_now(session: ProcessSession, report: Report) -> None:
    session.has_output = trio.Event()
    report(session.details())
