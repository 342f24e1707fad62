"""The four words for what a session is doing, for people; the protocols say READY, WORKING and PAUSED."""

from collections.abc import Mapping

SESSION_STATES = ("idle", "working", "waiting", "approval")
"""No turn runs; a turn runs; it waits for a worker or its place; it waits for a person's answer."""
_WORDS: Mapping[str, str] = {"READY": "idle", "WORKING": "working", "PAUSED": "approval"}


def session_state(state: str, *, waits: bool = False, asks: bool = False) -> str:
    """One of ``SESSION_STATES``; a state of a later version stays as it is.

    ``state``: as the protocols say it. ``waits``: its next turn has no worker yet. ``asks``: a call waits for approval.
    """
    if asks:
        return "approval"
    return "waiting" if waits and state != "PAUSED" else _WORDS.get(state, state)
