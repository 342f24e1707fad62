"""Waits for a command and reports its progress."""

import trio

from agent.processes.exec_session import ExecSession
from agent.tools.base import Report

_INTERVAL = 0.05


async def wait_for_end(session: ExecSession, report: Report, seconds: float) -> None:
    """Wait for the end, at most ``seconds``; report progress at most 20 times a second, and once more at the end.

    A cancellation may arrive as an exception group.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report_progress, session, report)
        with trio.move_on_after(seconds):
            await session.ended.wait()
        nursery.cancel_scope.cancel()
    if session.has_output.is_set():
        _report_now(session, report)


async def _report_progress(session: ExecSession, report: Report) -> None:
    while True:
        await session.has_output.wait()
        _report_now(session, report)
        await trio.sleep(_INTERVAL)


def _report_now(session: ExecSession, report: Report) -> None:
    session.has_output = trio.Event()
    report(session.details())
