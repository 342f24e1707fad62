"""What ``pool run`` shows: on a terminal one line of figures that stays at the bottom, elsewhere one line an event."""

import contextlib
import functools
import os
import queue
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TextIO

import structlog
import trio

from doors.last_words import WritingThread
from doors.log_settings import LogSettings
from doors.log_tail import LogTail
from doors.logs import opened_log, render_json, render_line
from doors.redaction import Redactor
from doors.styles import can_style, wants_styles
from doors.texts import span
from gateway.methods.ports import LogPage
from pool.statistics import PoolStatistics

__all__ = ["Narrator", "render_figures"]

_QUEUED_LINES = 1000
_REDRAW_SECONDS = 1.0
_CLEAR = "\r\x1b[2K"
_EVERY_TURN = frozenset({"session_bound", "session_parked", "session_resumed"})
"""Far too many for a log, unless somebody asks for everything."""
_ROUTINE = frozenset({"worker_spawned", "worker_ready", "worker_evicted", "worker_exited"})
"""Told by the figures already; on a terminal they would only scroll by."""
_TROUBLE = frozenset(
    {"breaker_opened", "error", "guard_lost", "session_failed", "state_file_set_aside", "worker_contaminated"}
    | {
        "hook_failed",
        "prewarm_failed",
        "previous_workers_left",
        "reload_refused",
        "service_manager_unreachable",
        "sessions_damaged",
        "socket_lost",
        "turn_stalled",
    }
    | {"store_degraded", "store_rows_refused", "store_set_aside"}
)
"""What somebody should look at."""
_TAKEN = frozenset({"event", "level", "logger", "ts"})
_EXPECTED_EXITS = frozenset({"evicted", "retired", "idle", "operator", "drained", "closed"})


class Narrator:
    """Tells a terminal or a log what the supervisor does, from a thread: a terminal that is held must not hold it.

    What cannot be written in time is dropped, and the number of lines dropped is told when writing goes on. A context
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
        self._tail = LogTail()
        self._log = contextlib.ExitStack()
        self._logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        self._queue: queue.Queue[tuple[str, str] | None] = queue.Queue(_QUEUED_LINES)
        self._dropped = 0
        self._thread = WritingThread(self._queue, self._write_all, "narrator")

    def __enter__(self) -> Self:
        self._logger = self._log.enter_context(
            opened_log(self._settings, self._take_line, self._render, self._redactor)
        )
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._log.close()
        self._thread.end()

    def hide(self, values: Iterable[str]) -> None:
        """Show these values in no line from now on: what the environments of profiles hold, for example."""
        self._redactor.hide(values)

    def log(self, event: str, data: Mapping[str, Any]) -> None:
        """Tell of an event; never blocks."""
        fields = {f"{key}_" if key in _TAKEN else key: value for key, value in data.items()}
        getattr(self._logger, self._level(event, data))(event, **fields)

    def log_tail(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """See ``LogTail.read``."""
        return self._tail.read(cursor, limit, max_bytes)

    def _take_line(self, line: str) -> None:
        self._tail.add(line)
        self.write(line)

    def write(self, line: str) -> None:
        """Write a line as it is, above the figures; never blocks."""
        self._put("line", line)

    def ready(self, socket: Path, data_dir: Path) -> None:
        """Tell that clients can connect."""
        self.log("ready", {"socket": str(socket), "data_dir": str(data_dir)})

    def _level(self, event: str, data: Mapping[str, Any]) -> str:
        if event == "worker_exited" and data.get("cause") not in _EXPECTED_EXITS:
            return "warning"
        if event in _TROUBLE:
            return "warning"
        return "debug" if event in _EVERY_TURN or (self._live and event in _ROUTINE) else "info"

    async def follow(self, statistics: Callable[[], PoolStatistics]) -> None:
        """Keep the line of figures true until cancelled: looked at once a second, redrawn when it has changed."""
        drawn = ""
        while self._live:
            line = render_figures(statistics(), shutil.get_terminal_size().columns - 1)
            if line != drawn:
                self._put("figures", line)
                drawn = line
            await trio.sleep(_REDRAW_SECONDS)

    def _put(self, kind: str, text: str) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(("line", self._render(_loss(self._dropped))))
                self._dropped = 0
            self._queue.put_nowait((kind, text))
        except queue.Full:
            self._dropped += 1

    # --- the writing thread -----------------------------------------------------------------------------------------

    def _write_all(self, thread: WritingThread) -> None:
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
        clear = _CLEAR if self._live else ""
        if kind == "figures":
            figures = text
            self._out.write(clear + text)
        else:
            self._out.write(f"{clear}{text}\n{figures}")
        self._out.flush()
        return figures


def _loss(count: int) -> dict[str, Any]:
    """The event that tells of lines which nobody read in time."""
    return {"ts": time.time(), "level": "warning", "event": "lines_dropped", "count": count}


def render_figures(figures: PoolStatistics, width: int) -> str:
    """The pool in one line of at most ``width`` characters."""
    pool = figures.pool
    parts = [
        f"pool {pool.total}/{pool.max}",
        *(f"{count} {name}" for name, count in (("leased", pool.leased), ("idle", pool.idle))),
        *(f"{count} {name}" for name, count in (("starting", pool.starting), ("stopping", pool.stopping)) if count),
        f"{pool.waiting} waiting",
        f"{len(figures.sessions)} sessions",
        f"{figures.latency.turn.count} turns",
    ]
    if figures.latency.acquire.count:
        parts.append(f"acquire p99 {span(figures.latency.acquire.p99)}")
    if pool.mode != "running":
        parts.insert(1, pool.mode)
    return "  ".join(parts)[: max(width, 0)]
