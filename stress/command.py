"""``pool stress``: runs, shows, writes what came of it; the exit code says whether every promise was kept."""

import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import trio
from rich.console import Console

from errors import UsageError
from stress.outcome import Result
from stress.plan import Wish
from stress.progress import Progress
from stress.report import render_report
from stress.running import drive_attached, drive_own
from stress.table import show_result

__all__ = ["stress"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stress(wish: Wish, *, attach: Path | None = None, json_file: Path | None = None, report: Path | None = None) -> int:
    """Drive a supervisor of our own, or the one on the socket ``attach``; 1 where a promise was broken.

    ``json_file`` gets the ``Result``, ``report`` a page that shows it; where the run fails there is neither. Ended by a
    signal it leaves no process and no file, and the exit code is 128 + its number. 1 also where not one request was
    completed: then next to nothing was looked at. Raises PoolError, OSError.
    """
    console = Console(file=sys.stderr, highlight=False)
    progress = Progress(console)

    async def run() -> Result:
        if attach is None:
            return await drive_own(wish, show=progress.follow)
        return await drive_attached(wish, attach, show=progress.follow)

    with ExitStack() as unmake:
        for file in (json_file, report):
            if file is not None and _make_writable(file):
                unmake.callback(file.unlink, missing_ok=True)
        with progress.shown():
            result = trio.run(_until_signalled, run)
        if isinstance(result, signal.Signals):
            console.print(f"ended by {result.name}: nothing is left, and nothing is said of any promise")
            return 128 + result
        unmake.pop_all()
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    told = Console(highlight=False)
    show_result(result, told)
    if report is not None:
        report.write_text(render_report(result), encoding="utf-8")
        told.print(f"The report: {report}", markup=False, soft_wrap=True)
    return 0 if result.is_green and not result.is_empty else 1


async def _until_signalled(run: Callable[[], Awaitable[Result]]) -> Result | signal.Signals:
    """What came of it, or the signal that has ended it, its supervisor first."""
    ended_by: list[signal.Signals] = []

    async def listen(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*_ENDING) as signals:
            task_status.started()
            async for number in signals:
                ended_by.append(signal.Signals(number))
                scope.cancel()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            await nursery.start(listen, scope)
            result = await run()
            nursery.cancel_scope.cancel()
            return result
        nursery.cancel_scope.cancel()
    return ended_by[0]


def _make_writable(file: Path) -> bool:
    """Tell what cannot be written before a run, not after; whether the file was not there. Raises UsageError."""
    try:
        is_new = not file.exists()
        file.open("ab").close()
    except OSError as exc:
        raise UsageError(f"cannot write {file}: {exc.strerror}") from exc
    return is_new
