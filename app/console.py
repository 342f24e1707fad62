"""Console of ``pool run``: status line, log lines, and the threads that write them without blocking."""

import contextlib
import errno
import functools
import logging
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self, TextIO

import trio

from app.log import OWN_LOGGER, LogTail, opened_log
from app.log_file import LogFile
from pool.statistics import PoolStatistics
from pool.worker_logs import LogChanges
from settings.schema import LogSettings
from wire.log_context import facts
from wire.log_file import SUPERVISOR_LOG
from wire.log_line import render_json, render_line
from wire.redaction import Redactor
from wire.terminal import can_style, format_duration, wants_styles

_POLL_SECONDS = 0.05
_MAX_BLOCKED_POLLS = 20
"""Polls that find the thread inside a write, a second in all. A thread that is only not scheduled is waited for."""


class OutputThread(threading.Thread):
    """Runs ``write_all``, which is given this thread and writes what ``lines`` has, up to a None; a daemon."""

    def __init__(self, lines: queue.Queue[Any], write_all: Callable[["OutputThread"], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._lines = lines
        self._write_all = write_all
        self.is_writing = False
        """Set around what a reader can hold up."""
        self.is_abandoned = False

    def run(self) -> None:
        """Write until ``end``."""
        self._write_all(self)

    def end(self) -> None:
        """Queue None after the last line and wait for the thread; give up if the reader does not read."""
        patience = _MAX_BLOCKED_POLLS
        is_told = False
        while self.is_alive() and patience:
            if not is_told:
                with suppress(queue.Full):
                    self._lines.put_nowait(None)
                    is_told = True
            self.join(_POLL_SECONDS)
            patience -= self.is_writing
        self.is_abandoned = self.is_alive()


@contextmanager
def exit_if_output_blocked() -> Iterator[None]:
    """End the process with 0 (1: raised) if an output thread is still blocked in a write.

    Otherwise Python's own exit would wait for that thread without end.
    """
    code = 1
    try:
        yield
        code = 0
    finally:
        if any(isinstance(thread, OutputThread) and thread.is_abandoned for thread in threading.enumerate()):
            os._exit(code)


_QUEUED_LINES = 1000
_REDRAW_SECONDS = 1.0
_CLEAR = "\r\x1b[2K"
_DEBUG_EVENTS = frozenset({"group_full", "session_bound", "session_parked", "session_resumed"})
"""Too many for the log at level info."""
_ROUTINE_EVENTS = frozenset({"worker_spawned", "worker_ready", "worker_evicted", "worker_exited"})
"""On a terminal the status line shows these already."""
_WARNING_EVENTS = frozenset(
    {"breaker_opened", "error", "guard_lost", "session_failed", "state_file_set_aside", "worker_contaminated"}
    | {"hook_failed", "prewarm_failed", "previous_workers_left", "reload_refused", "service_manager_unreachable"}
    | {"engine_lost", "node_lost", "node_refused"}
    | {"sessions_damaged", "socket_lost", "turn_stalled", "store_degraded", "store_rows_refused", "store_set_aside"}
    | {"modes_tightened", "transcripts_missing"}
)
"""Events that need attention."""
_RESERVED_FIELDS = frozenset({"event", "level", "logger", "ts"})
_EXPECTED_EXITS = frozenset({"evicted", "retired", "idle", "operator", "drained", "closed"})


class ConsoleLog:
    """Writes the supervisor's events to a terminal or a log, from a thread: a blocked terminal must not block it.

    Lines that cannot be written in time are dropped, and their number is written later; ``file`` gets each. A context
    manager: while it is entered, every logger of the process writes here too; leaving it gives the reader of the
    last lines a second.
    """

    def __init__(
        self,
        *,
        live: bool,
        settings: LogSettings | None = None,
        out: TextIO | None = None,
        env: Mapping[str, str] = os.environ,
        file: LogFile | None = None,
    ) -> None:
        """``live``: ``out`` (stderr) is a terminal. ``env``: says whether it shows colours (``NO_COLOR``, ``TERM``)."""
        self._settings = settings or LogSettings()
        is_human = self._settings.format == "human" or (self._settings.format == "auto" and live)
        can_draw = live and can_style(env)
        self._live = can_draw and is_human
        is_coloured = live and wants_styles(env)
        self._render = functools.partial(render_line, is_coloured=is_coloured) if is_human else render_json
        self._out = out or sys.stderr
        self._redactor = Redactor()
        self._file = file
        self.tail = LogTail()
        self._log = contextlib.ExitStack()
        self._logger = logging.getLogger(OWN_LOGGER)
        self._queue: queue.Queue[tuple[str, str] | None] = queue.Queue(_QUEUED_LINES)
        self._dropped = 0
        self._thread = OutputThread(self._queue, self._write_all, "console")

    def __enter__(self) -> Self:
        def receive(line: str) -> None:
            self.tail.add(line)
            if self._file is not None and self._render is render_json:
                self._file.add(line)
            if self._file is None or not self._file.is_stderr:
                self.write(line)

        self._log.enter_context(opened_log(self._settings, receive, self._render, self._redactor))
        if self._file is not None and self._render is not render_json:
            self._log.enter_context(opened_log(self._settings, self._file.add, render_json, self._redactor))
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._log.close()
        self._thread.end()

    def hide(self, values: Iterable[str]) -> None:
        """Show these values in no line from now on: what the environments of profiles hold, for example."""
        self._redactor.add_secrets(values)

    async def wake_readers(
        self, changes: LogChanges, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Tell those who read the log's file that it has grown, until cancelled."""
        token = trio.lowlevel.current_trio_token()

        def wake() -> None:
            if changes.is_watched:
                token.run_sync_soon(changes.note, SUPERVISOR_LOG, idempotent=True)

        if self._file is not None:
            self._file.on_written = wake
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            if self._file is not None:
                self._file.on_written = None

    def log(self, event: str, data: Mapping[str, Any]) -> None:
        """Log an event; never blocks."""
        fields = {f"{key}_" if key in _RESERVED_FIELDS else key: value for key, value in data.items()}
        self._logger.log(self._level(event, data), event, extra=facts(**fields))

    def write(self, line: str) -> None:
        """Write a line as it is, above the figures; never blocks."""
        self._put("line", line)

    def _level(self, event: str, data: Mapping[str, Any]) -> int:
        is_unexpected_exit = event == "worker_exited" and data.get("cause") not in _EXPECTED_EXITS
        if is_unexpected_exit or event in _WARNING_EVENTS:
            return logging.WARNING
        is_routine = event in _DEBUG_EVENTS or (self._live and event in _ROUTINE_EVENTS)
        return logging.DEBUG if is_routine else logging.INFO

    async def run_status_line(self, statistics: Callable[[], PoolStatistics]) -> None:
        """Keep the line of figures true until cancelled: looked at once a second, redrawn when it has changed."""
        drawn = ""
        while self._live:
            line = render_status_line(statistics(), shutil.get_terminal_size().columns - 1)
            if line != drawn:
                self._put("figures", line)
                drawn = line
            await trio.sleep(_REDRAW_SECONDS)

    def _put(self, kind: str, text: str) -> None:
        try:
            if self._dropped:
                dropped = {"ts": time.time(), "level": "warning", "event": "lines_dropped", "count": self._dropped}
                self._queue.put_nowait(("line", self._render(dropped)))
                self._dropped = 0
            self._queue.put_nowait((kind, text))
        except queue.Full:
            self._dropped += 1

    # --- the writing thread -----------------------------------------------------------------------------------------

    def _write_all(self, thread: OutputThread) -> None:
        figures = ""
        try:
            while (item := self._queue.get()) is not None:
                thread.is_writing = True
                figures = self._write(*item, figures)
                thread.is_writing = False
            if figures:
                thread.is_writing = True
                self._out.write(_CLEAR)  # what they say has been overtaken by the end
                self._out.flush()
        except (OSError, ValueError):
            return  # the terminal or the log is gone; the supervisor goes on without

    def _write(self, kind: str, text: str, figures: str) -> str:
        """Returns the figures that stand in the last line now."""
        clear = _CLEAR if self._live else ""
        is_figures = kind == "figures"
        self._out.write(clear + text if is_figures else f"{clear}{text}\n{figures}")
        self._out.flush()
        return text if is_figures else figures


def render_status_line(figures: PoolStatistics, width: int) -> str:
    """The pool in one line of at most ``width`` characters."""
    pool = figures.pool
    parts = [
        f"pool {pool.total}/{pool.max}",
        f"{pool.leased} leased",
        f"{pool.idle} idle",
        *(f"{count} {name}" for name, count in (("starting", pool.starting), ("stopping", pool.stopping)) if count),
        f"{pool.waiting} waiting",
        f"{len(figures.sessions)} sessions",
        f"{figures.latency.turn.count} turns",
    ]
    if figures.latency.acquire.count:
        parts.append(f"acquire p99 {format_duration(figures.latency.acquire.p99)}")
    if pool.mode != "running":
        parts.insert(1, pool.mode)
    return "  ".join(parts)[: max(width, 0)]


_MAX_QUEUED = 100


class Printer:
    """A context manager; leaving it gives the reader of the last lines a second.

    Without lines it starts no thread. Characters that the output's encoding does not have are written as
    standard error has them: by their numbers.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._encoding = out.encoding or "utf-8"
        self._queue: queue.Queue[str | None] = queue.Queue(_MAX_QUEUED)
        self._thread: OutputThread | None = None
        self._error: OSError | None = None
        self.failed = threading.Event()
        """It writes no more, because that failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._thread is not None:
            self._thread.end()

    def write(self, lines: str) -> None:
        """Queue lines, without the last line end; never blocks. Raises OSError if they cannot be written."""
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._thread = OutputThread(self._queue, self._write_all, "printer")
            self._thread.start()
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _write_all(self, thread: OutputThread) -> None:
        try:
            while (lines := self._queue.get()) is not None:
                writable = lines.encode(self._encoding, "backslashreplace").decode(self._encoding)
                thread.is_writing = True
                self._out.write(f"{writable}\n")
                self._out.flush()
                thread.is_writing = False
        except (OSError, ValueError) as exc:  # ValueError: closed
            self._error = exc if isinstance(exc, OSError) else OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            self.failed.set()
