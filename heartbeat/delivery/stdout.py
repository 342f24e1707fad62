"""Alerts on the terminal of ``pool run``: a line that says whose it is, then its text, indented."""

import datetime as dt
import re
from collections.abc import Callable

from heartbeat.delivery.channel import Alert, DeliveryFailed

__all__ = ["StdoutOutlet", "render_alert"]

_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control codes and changes of direction: an agent's text must not move the cursor or pretend to be another line."""


class StdoutOutlet:
    """Writes alerts out."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """``write`` takes lines without the last line end and does not wait; it may raise OSError."""
        self._write = write

    def show(self, alert: Alert) -> None:
        """Write it. Raises DeliveryFailed."""
        try:
            self._write(render_alert(alert))
        except OSError as exc:
            raise DeliveryFailed(f"the output cannot be written: {exc.strerror or type(exc).__name__}") from exc


def render_alert(alert: Alert) -> str:
    """``2026-01-02T03:04:05Z alert AGENT (SESSION, REASON)``, below it the text, indented; files as ``MEDIA:``."""
    at = dt.datetime.fromtimestamp(alert.ts, dt.UTC)
    head = f"{at:%Y-%m-%dT%H:%M:%SZ} alert {alert.agent} ({alert.session}, {alert.reason})"
    body = alert.text.replace("\r\n", "\n").split("\n")
    files = (f"MEDIA:{path}" for path in alert.media)
    return "\n".join([_fit(head), *(f"    {_fit(line)}".rstrip() for line in (*body, *files))])


def _fit(line: str) -> str:
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", line.replace("\n", " "))
