"""``pool stress``: runs, shows, writes what came of it; the exit code says whether every promise was kept."""

import sys
from pathlib import Path

import msgspec
import trio
from rich.console import Console

from stress.outcome import Result
from stress.plan import Wish
from stress.progress import Progress
from stress.report import render_report
from stress.running import drive_attached, drive_own
from stress.table import show_result

__all__ = ["stress"]


def stress(wish: Wish, *, attach: Path | None = None, json_file: Path | None = None, report: Path | None = None) -> int:
    """Drive a supervisor of our own, or the one on the socket ``attach``; 1 where a promise was broken.

    ``json_file`` gets the ``Result``, ``report`` a page that shows it. Raises PoolError, OSError.
    """
    console = Console(file=sys.stderr, highlight=False)
    progress = Progress(console)

    async def run() -> Result:
        if attach is None:
            return await drive_own(wish, show=progress.follow)
        return await drive_attached(wish, attach, show=progress.follow)

    for file in filter(None, (json_file, report)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # what cannot be written is told before, not after
    with progress.shown():
        result = trio.run(run)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    told = Console(highlight=False)
    show_result(result, told)
    if report is not None:
        report.write_text(render_report(result), encoding="utf-8")
        told.print(f"The report: {report}", markup=False, soft_wrap=True)
    return 0 if result.is_green else 1
