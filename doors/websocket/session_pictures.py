"""Events for subscribers of sessions: ``sessions.changed`` and ``session.message``. Pure.

``session.message``: an accepted message, or the agent's answer. ``sessions.changed``: the state or the settings of a
session have changed, or it was reset or deleted.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from doors.websocket.pictures import Moment, Told
from doors.websocket.shapes import milliseconds, present
from doors.websocket.subscriptions import Audience

__all__ = ["CHANGES", "MESSAGES", "change", "message"]

CHANGES = {
    "state_changed": "state",
    "session_patched": "patch",
    "session_reset": "reset",
    "session_deleted": "delete",
}
"""The gateway's events, with the ``reason`` of each."""
MESSAGES = frozenset({"run:accepted", "done"})

_encode = msgspec.json.Encoder().encode


class _State(msgspec.Struct):
    to: str | None = None


class _Said(msgspec.Struct):
    """Of ``run:accepted`` and of ``done``."""

    text: str = ""
    truncated: bool = False
    silent: bool = False
    error: Any = None


def change(moment: Moment, kind: str, data: msgspec.Raw) -> Told:
    """The event ``sessions.changed``."""
    facts = {
        "sessionKey": moment.session,
        "reason": CHANGES[kind],
        "ts": milliseconds(moment.ts),
        "seq": moment.seq,
        **present(state=msgspec.json.decode(data, type=_State).to),
    }
    return Told("sessions.changed", _encode(facts), audience=Audience.SESSIONS)


def message(moment: Moment, kind: str, data: msgspec.Raw) -> Iterable[Told]:
    """The event ``session.message``; none for a run without text."""
    said = msgspec.json.decode(data, type=_Said)
    if not said.text or said.silent or said.error is not None:
        return
    role = "user" if kind == "run:accepted" else "assistant"
    facts = {
        "sessionKey": moment.session,
        "runId": moment.run_id,
        "messageId": f"{moment.run_id}:{role}",
        "messageSeq": moment.seq,
        "message": {
            "role": role,
            "content": [{"type": "text", "text": said.text}],
            "timestamp": milliseconds(moment.ts),
            **present(truncated=said.truncated or None),
        },
    }
    yield Told("session.message", _encode(facts), audience=Audience.MESSAGES, session=moment.session)
