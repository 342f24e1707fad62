"""``pool stress``: runs, shows progress, writes the results; the exit code says whether every promise was kept."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import trio
from rich.console import Console

from errors import PoolError, UsageError
from stress.outcome import StressResult
from stress.plan import StressOptions
from stress.report import render_report
from stress.run import drive_attached, drive_own
from stress.terminal import LiveProgress, PipeSafeConsole, show_result

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ASCII_MARKS = str.maketrans({"✓": "+", "✗": "x", "…": "."})
"""Replacements for marks that the output cannot encode: as question marks, kept and broken would look alike."""


def stress(
    wish: StressOptions, *, attach: Path | None = None, json_file: Path | None = None, report: Path | None = None
) -> int:
    """Drive a supervisor of our own, or the one on the socket ``attach``; returns the exit code.

    0: every promise was kept. 1: one was broken, or no request was completed. 128 + number: ended by that signal; the
    progress so far is printed, and no process and no file are left. ``json_file`` gets the ``StressResult``, ``report``
    the HTML page; a run that fails writes neither. Raises PoolError, also if a file could not be written; the other
    one is.
    """
    console = PipeSafeConsole(file=sys.stderr, highlight=False)
    progress = LiveProgress(console)

    async def run() -> StressResult:
        if attach is None:
            return await drive_own(wish, show=progress.follow)
        return await drive_attached(wish, attach, show=progress.follow)

    if json_file is not None and report is not None and json_file.resolve() == report.resolve():
        raise UsageError(f"--json and --report would both be written to {report}; name two files")
    with ExitStack() as unmake:
        for file in (json_file, report):
            if file is not None and _make_writable(file):
                unmake.callback(file.unlink, missing_ok=True)
        with progress.shown():
            result = trio.run(_until_signalled, run)
        if isinstance(result, signal.Signals):
            progress.print_status()
            with console.ignoring_errors():
                console.print(f"ended by {result.name}: nothing is left; final checks of the run were not made")
            return 128 + result
        unmake.pop_all()
    _write_outputs(result, json_file, report)
    return 0 if result.all_kept and not result.is_empty else 1


def _write_outputs(result: StressResult, json_file: Path | None, report: Path | None) -> None:
    """Write to each place even if others fail: the run may have taken hours. Raises PoolError at the end."""
    failed: dict[str, Exception] = {}

    def attempt(what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as exc:  # noqa: BLE001 - the other places get the result first
            failed[what] = exc

    if json_file is not None:
        attempt(str(json_file), lambda: _write(json_file, lambda: msgspec.json.format(msgspec.json.encode(result))))
    if report is not None:
        attempt(str(report), lambda: _write(report, lambda: render_report(result).encode(errors="replace")))
    is_reported = report is not None and str(report) not in failed
    attempt("the table to stdout", lambda: _print(_table(result, report if is_reported else None)))
    if failed:
        said = (f"cannot write {what}: {_error_text(exc)}" for what, exc in failed.items())
        raise PoolError("; ".join(said)) from next(iter(failed.values()))


def _error_text(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__}: {exc}"


def _write(file: Path, make: Callable[[], bytes]) -> None:
    """Write the whole file; remove it if it ends up empty or cut off. Raises OSError."""
    content = b""
    try:
        content = make()
        file.write_bytes(content)
    except BaseException:
        if file.is_file() and content.startswith(file.read_bytes()):
            file.unlink()
        raise


def _table(result: StressResult, report: Path | None) -> str:
    """The table as text; rich itself would end the process if the pipe is closed."""
    console = Console(highlight=False)
    with console.capture() as captured:
        show_result(result, console)
        if report is not None:
            console.print(f"The report: {report}", markup=False, soft_wrap=True)
    return captured.get()


def _print(text: str) -> None:
    """Write to stdout in any encoding. Raises OSError; the rest is dropped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII_MARKS).encode(encoding, "replace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        with suppress(OSError), Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())
        raise


async def _until_signalled(run: Callable[[], Awaitable[StressResult]]) -> StressResult | signal.Signals:
    """The result, or the signal that has ended the run and its supervisor."""
    ended_by: list[signal.Signals] = []

    async def listen(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
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
    """Find out before the run what cannot be written; returns whether the file is new. Raises UsageError.

    Also for a named pipe without a reader, which an ordinary open would wait for.
    """
    try:
        is_new = not file.exists()
        os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666))
    except OSError as exc:
        raise UsageError(f"cannot write {file}: {exc.strerror}") from exc
    return is_new
