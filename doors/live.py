"""What ``pool run`` shows: on a terminal one line of figures that stays at the bottom, elsewhere one line an event."""

import datetime as dt
import queue
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TextIO

import msgspec
import trio

from doors.texts import clean, span
from pool.statistics import PoolStatistics

__all__ = ["Narrator", "log_line", "render_line"]

_QUEUED_LINES = 1000
_REDRAW_SECONDS = 1.0
_CLOSE_SECONDS = 1.0
_CLEAR = "\r\x1b[2K"
_ROUTINE = frozenset(
    {"session_bound", "session_parked", "session_resumed", "worker_spawned", "worker_ready", "worker_evicted"}
)
"""Told by the figures already; on a terminal they would only scroll by."""
_EXPECTED_EXITS = frozenset({"evicted", "retired", "idle", "operator", "drained", "closed"})


class Narrator:
    """Tells a terminal or a log what the supervisor does, from a thread: a terminal that is held must not hold it.

    What cannot be written in time is dropped, and the number of lines dropped is told when writing goes on. A context
    manager; ``close`` gives the last lines a second.
    """

    def __init__(self, *, live: bool, out: TextIO | None = None) -> None:
        self._live = live
        self._out = out or sys.stderr
        self._queue: queue.Queue[tuple[str, str] | None] = queue.Queue(_QUEUED_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="narrator", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def log(self, event: str, data: dict[str, Any]) -> None:
        """Tell of an event; never blocks."""
        if not self._live or _is_notable(event, data):
            self._put("line", log_line(event, data, dt.datetime.now(dt.UTC)))

    def ready(self, socket: Path, data_dir: Path) -> None:
        """Tell that clients can connect."""
        self.log("ready", {"socket": str(socket), "data_dir": str(data_dir)})

    async def follow(self, statistics: Callable[[], PoolStatistics]) -> None:
        """Keep the line of figures true until cancelled: looked at once a second, redrawn when it has changed."""
        drawn = ""
        while self._live:
            line = render_line(statistics(), shutil.get_terminal_size().columns - 1)
            if line != drawn:
                self._put("figures", line)
                drawn = line
            await trio.sleep(_REDRAW_SECONDS)

    def close(self) -> None:
        """Write what is left, within a second."""
        if self._thread.is_alive():
            self._put_last()
            self._thread.join(_CLOSE_SECONDS)

    def _put(self, kind: str, text: str) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(("line", f"{self._dropped} lines were dropped: nobody read them in time"))
                self._dropped = 0
            self._queue.put_nowait((kind, text))
        except queue.Full:
            self._dropped += 1

    def _put_last(self) -> None:
        try:
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        except queue.Full:
            return  # nobody reads; the thread is a daemon and ends with the process

    # --- the writing thread -----------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        figures = ""
        try:
            while (item := self._queue.get()) is not None:
                figures = self._write(*item, figures)
            if figures:
                self._out.write("\n")
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


def log_line(event: str, data: dict[str, Any], at: dt.datetime) -> str:
    """``2026-01-02T03:04:05Z worker_exited worker=w1 error="exited with code 3"``: texts with spaces are quoted."""
    fields = "".join(f" {clean(key)}={_value(value)}" for key, value in data.items() if value is not None)
    return f"{at:%Y-%m-%dT%H:%M:%SZ} {event}{fields}"


def render_line(figures: PoolStatistics, width: int) -> str:
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


def _is_notable(event: str, data: dict[str, Any]) -> bool:
    return event not in _ROUTINE and not (event == "worker_exited" and data.get("cause") in _EXPECTED_EXITS)


def _value(value: Any) -> str:
    if isinstance(value, str):
        text = clean(value)
        return text if text and " " not in text and '"' not in text else msgspec.json.encode(text).decode()
    return msgspec.json.encode(value).decode()
