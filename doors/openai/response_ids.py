"""What a response of ``/v1/responses`` is called: its id says which session and run it is. Pure.

So an id outlives a restart, and the session that ``previous_response_id`` means is found without a table.
"""

import base64
import binascii
from typing import NamedTuple

__all__ = ["Named", "read_response_id", "response_id"]

_PREFIX = "resp_"
_MOST_CHARS = 2000


class Named(NamedTuple):
    """What an id stands for."""

    session: str
    run: str


def response_id(session: str, run: str) -> str:
    """The id of the response that this run is."""
    text = base64.urlsafe_b64encode(f"{session}\n{run}".encode()).decode().rstrip("=")
    return f"{_PREFIX}{text}"


def read_response_id(given: str) -> Named | None:
    """And back; None for what was never an id of ours."""
    text = given.removeprefix(_PREFIX)
    if text == given or len(given) > _MOST_CHARS:
        return None
    try:
        session, newline, run = (
            base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode().partition("\n")
        )
    except (binascii.Error, ValueError):
        return None
    return Named(session, run) if session and newline and run and "\n" not in run else None
