"""A line of the supervisor's log: as JSON, and as text for people. Pure."""

import datetime as dt
from typing import Any

import msgspec

from wire.terminal import BOLD, DIM, PLAIN, RED, YELLOW, clean

_HEAD_FIELDS = ("ts", "level", "logger", "event")
_COLOURS = {"warning": YELLOW, "error": RED, "critical": RED, "debug": DIM}


def render_json(event: dict[str, Any]) -> str:
    """``{"ts":"2026-01-02T03:04:05.678Z","level":"info","event":"ready","socket":...}``."""
    at = dt.datetime.fromtimestamp(event["ts"], dt.UTC)
    return msgspec.json.encode({**event, "ts": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"}).decode()


def render_line(event: dict[str, Any], *, is_coloured: bool = False) -> str:
    """``2026-01-02T03:04:05Z warning worker_exited worker=w1 error="exited with code 3"``, a traceback below it.

    Texts with spaces are quoted; the usual level is not worth a word.
    """
    dim, bold, plain = (DIM, BOLD, PLAIN) if is_coloured else ("", "", "")
    fields = {
        key: value for key, value in event.items() if key not in (*_HEAD_FIELDS, "exception") and value is not None
    }
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
