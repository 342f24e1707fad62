"""Ids of responses, which encode their session and run. Pure.

An id is valid over a restart, and ``previous_response_id`` needs no table.
"""

import base64
import binascii
from typing import NamedTuple

__all__ = ["SessionRun", "read_response_id", "response_id"]

_PREFIX = "resp_"
_MOST_CHARS = 2000


class SessionRun(NamedTuple):
    """The session and run of an id."""

    session: str
    run: str


def response_id(session: str, run: str) -> str:
    """The id of a run's response."""
    text = base64.urlsafe_b64encode(f"{session}\n{run}".encode()).decode().rstrip("=")
    return f"{_PREFIX}{text}"


def read_response_id(given: str) -> SessionRun | None:
    """The session and run of an id; None if it was never one of ours."""
    text = given.removeprefix(_PREFIX)
    if text == given or len(given) > _MOST_CHARS:
        return None
    try:
        session, newline, run = (
            base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode().partition("\n")
        )
    except (binascii.Error, ValueError):
        return None
    return SessionRun(session, run) if session and newline and run and "\n" not in run else None
