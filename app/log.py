"""The log of ``pool run``: its handler, log lines of session errors, and the tail for ``logs.tail``.

All loggers share one path: bound facts (request, session, run), level, time, redaction, one line, the sink. The sink
must not block: a caller may be the supervisor's only thread.
"""

import contextlib
import logging
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.methods.operator import LogPage
from settings.schema import LogSettings
from wire.log_context import bound_facts
from wire.messages import EventEnvelope
from wire.redaction import Redactor

OWN_LOGGER = "pool"
_TRACE_LINES = 40
Renderer = Callable[[dict[str, Any]], str]


@contextlib.contextmanager
def opened_log(
    settings: LogSettings, sink: Callable[[str], None], render: Renderer, redactor: Redactor
) -> Iterator[logging.Logger]:
    """Route every logger of this process to ``sink``, one call a line; yields the logger of the house itself.

    ``render`` makes the line of ``{ts, level, event, ...}``: ``ts`` in seconds, all else as the redactor leaves it.
    Loggers and warnings are as before when it ends.
    """
    handler = _Handler(sink)
    handler.setFormatter(_Formatter(render, redactor))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    logging.captureWarnings(capture=True)
    try:
        yield logging.getLogger(OWN_LOGGER)
    finally:
        logging.captureWarnings(capture=False)
        root.setLevel(level)
        root.removeHandler(handler)


class _Handler(logging.Handler):
    """Hands each line to the sink."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as exc:  # noqa: BLE001  # who logs is not to fail for it; the log says what it lacks
            message = f"a line for the log could not be made: {record.msg!r}: {type(exc).__name__}: {exc}"
            fields = {"name": record.name, "levelno": logging.ERROR, "levelname": "ERROR", "msg": message}
            line = self.format(logging.makeLogRecord(fields))
        self._sink(line)


class _Formatter(logging.Formatter):
    """A record as one line: what is bound where it was logged, its own facts, the end of its traceback."""

    def __init__(self, render: Renderer, redactor: Redactor) -> None:
        super().__init__()
        self._render = render
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        logger = {} if record.name == OWN_LOGGER else {"logger": record.name}
        head = {"level": record.levelname.lower(), **logger, "event": record.getMessage()}
        event = {**head, **bound_facts(), **getattr(record, "facts", {})}
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            event["exception"] = "\n".join(trace[-_TRACE_LINES:])
        return self._render({"ts": record.created, **self._redactor.fields(event)})


_MAX_RUNS = 1000


class ErrorLog:
    """Takes every ``error`` event. Of one run the first reaches the log, however many its worker makes."""

    def __init__(self, log: Callable[[str, Mapping[str, Any]], None]) -> None:
        """``log`` takes the event's name and its facts."""
        self._log = log
        self._logged: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Runs with a logged error, the latest last."""

    def record(self, event: EventEnvelope) -> None:
        """Log an error of a session, each where it is of no run; others were logged where they happened."""
        if not event.session:
            return
        if event.run_id is not None:
            run = (event.session, event.run_id)
            if run in self._logged:
                return
            self._logged[run] = None
            if len(self._logged) > _MAX_RUNS:
                self._logged.popitem(last=False)
        facts = msgspec.json.decode(event.data, type=dict[str, Any])
        self._log("error", {**facts, "session": event.session, "run": event.run_id})


KEPT_BYTES = 1024 * 1024
_LONGEST_LINE = 16 * 1024
"""Bytes; the rest of a longer line is left out here, not in the log itself."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class LogTail:
    """Filled from any thread. A position is how many bytes were logged before it in this supervisor's life."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._lines: deque[tuple[str, int]] = deque()
        """Each with its size in bytes, the line break included."""
        self._begin = self._end = 0
        """The positions of the first line that is kept, and after the last one."""
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Keep what was logged; one event may have several lines."""
        with self._lock:
            for line in _STYLE.sub("", text).split("\n"):
                kept = line.encode(errors="replace")[:_LONGEST_LINE].decode(errors="ignore")
                size = len(kept.encode()) + 1
                self._lines.append((kept, size))
                self._end += size
            while self._end - self._begin > self._kept_bytes:
                self._begin += self._lines.popleft()[1]

    def read(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """The lines after the position ``cursor``, of these the latest; without one the latest of all."""
        with self._lock:
            lines, begin, end = list(self._lines), self._begin, self._end
        is_reset = cursor is not None and cursor > end
        since = begin if cursor is None or is_reset else cursor
        taken: list[str] = []
        position = end
        while lines and len(taken) < limit:
            line, size = lines.pop()
            if position - size < since or end - (position - size) > max_bytes:
                break
            taken.append(line)
            position -= size
        return LogPage(
            cursor=end,
            size=end,
            lines=taken[::-1],
            truncated=position > since or (cursor is not None and cursor < begin),
            reset=is_reset,
        )
