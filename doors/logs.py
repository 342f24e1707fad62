"""The log of ``pool run``: what structlog and the standard library's loggers are told, as lines for people or as JSON.

Everything takes one way: bound facts (request, session, run), level, time, redaction, one line, the sink. The sink must
not block; who calls a logger may be the supervisor's only thread.
"""

import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from doors.log_settings import LogSettings
from doors.redaction import Redactor
from doors.styles import BOLD, DIM, PLAIN, RED, YELLOW
from doors.texts import clean

__all__ = ["Renderer", "opened_log", "render_json", "render_line"]

_NAMES = ("ts", "level", "logger", "event")
_OWN_LOGGER = "pool"
_TRACE_LINES = 40
_COLOURS = {"warning": YELLOW, "error": RED, "critical": RED, "debug": DIM}
Renderer = Callable[[dict[str, Any]], str]


@contextlib.contextmanager
def opened_log(
    settings: LogSettings, sink: Callable[[str], None], render: Renderer, redactor: Redactor
) -> Iterator[structlog.typing.FilteringBoundLogger]:
    """Route every logger of this process to ``sink``, one call a line; yields the logger of the house itself.

    ``render`` makes the line of ``{ts, level, event, ...}``: ``ts`` in seconds, all else as the redactor leaves it.
    Loggers and warnings are as before when it ends.
    """
    handler = _Handler(sink)
    handler.setFormatter(_formatter(render, redactor))
    root = logging.getLogger()
    level, config = root.level, structlog.get_config()
    structlog.configure(
        processors=[*_facts(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    logging.captureWarnings(capture=True)
    try:
        yield structlog.get_logger(_OWN_LOGGER)
    finally:
        logging.captureWarnings(capture=False)
        root.setLevel(level)
        root.removeHandler(handler)
        structlog.configure(**config)


class _Handler(logging.Handler):
    """Hands each line to the sink."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as exc:  # noqa: BLE001  # who logs is not to fail for it; the log says what it lacks
            line = self.format(_substitute(record, exc))
        self._sink(line)


def _substitute(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    message = f"a line for the log could not be made: {record.msg!r}: {type(error).__name__}: {error}"
    fields = {"name": record.name, "levelno": logging.ERROR, "levelname": "ERROR", "msg": message}
    return logging.makeLogRecord(fields)


def _formatter(render: Renderer, redactor: Redactor) -> logging.Formatter:
    def finish(_logger: Any, _method: str, event: EventDict) -> str:
        head = {name: event.pop(name) for name in _NAMES if name in event}
        if head.get("logger") == _OWN_LOGGER:
            del head["logger"]
        if "exception" in event:
            event["exception"] = "\n".join(event["exception"].splitlines()[-_TRACE_LINES:])
        return render({"ts": head.pop("ts"), **redactor.fields({**head, **event})})

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_facts(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            finish,
        ],
    )


def _facts() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(key="ts"),
    ]


# --- lines ----------------------------------------------------------------------------------------------------------


def render_json(event: dict[str, Any]) -> str:
    """``{"ts":"2026-01-02T03:04:05.678Z","level":"info","event":"ready","socket":...}``."""
    at = dt.datetime.fromtimestamp(event["ts"], dt.UTC)
    return msgspec.json.encode({**event, "ts": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"}).decode()


def render_line(event: dict[str, Any], *, is_coloured: bool = False) -> str:
    """``2026-01-02T03:04:05Z warning worker_exited worker=w1 error="exited with code 3"``, a traceback below it.

    Texts with spaces are quoted; the usual level is not worth a word.
    """
    dim, bold, plain = (DIM, BOLD, PLAIN) if is_coloured else ("", "", "")
    fields = {key: value for key, value in event.items() if key not in (*_NAMES, "exception") and value is not None}
    level = event.get("level", "info")
    colour = _COLOURS.get(level, "") if is_coloured else ""
    parts = [
        f"{dim}{dt.datetime.fromtimestamp(event['ts'], dt.UTC):%Y-%m-%dT%H:%M:%SZ}{plain}",
        *([f"{colour}{level}{plain if colour else ''}"] if level != "info" else []),
        *([f"{dim}{clean(event['logger'])}{plain}"] if "logger" in event else []),
        f"{bold}{clean(event['event'])}{plain}",
        *(f"{dim}{clean(key)}={plain}{_value(value)}" for key, value in fields.items()),
    ]
    trace = "".join(f"\n  {clean(line)}" for line in event.get("exception", "").splitlines())
    return " ".join(parts) + trace


def _value(value: Any) -> str:
    if isinstance(value, str):
        text = clean(value)
        return text if text and " " not in text and '"' not in text else msgspec.json.encode(text).decode()
    return clean(msgspec.json.encode(value).decode())
