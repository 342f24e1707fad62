"""What happens to sessions, as those hear it who follow their list (``sessions.changed``) or messages. Pure.

``session.message``: a message that was accepted for a session, and what its agent answered. ``sessions.changed``:
a session is doing something else, is set otherwise, begins anew, or is gone.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from doors.websocket.listening import Audience
from doors.websocket.pictures import Moment, Told
from doors.websocket.shapes import milliseconds, present

__all__ = ["CHANGES", "MESSAGES", "change", "message"]

CHANGES = {
    "state_changed": "state",
    "session_patched": "patch",
    "session_reset": "reset",
    "session_deleted": "delete",
}
"""The gateway's events by the reason that is told."""
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
    """A session is otherwise than before."""
    facts = {
        "sessionKey": moment.session,
        "reason": CHANGES[kind],
        "ts": milliseconds(moment.ts),
        "seq": moment.seq,
        **present(state=msgspec.json.decode(data, type=_State).to),
    }
    return Told("sessions.changed", _encode(facts), audience=Audience.SESSIONS)


def message(moment: Moment, kind: str, data: msgspec.Raw) -> Iterable[Told]:
    """Something was said in a session; nothing where a run said nothing."""
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
