"""Event payloads. Pure.

Single events of the gateway as the protocol pictures them. Pure.

``agent``: ``{runId, seq, stream, ts, sessionKey, data}`` with the streams lifecycle, assistant, tool, compaction and
error; ``chat``: ``{runId, sessionKey, seq, state, message?}`` with the states delta, final, aborted and error. ``seq``
is the gateway's: what ``GET /events?since=`` goes on from. Times are milliseconds since 1970.

Events for subscribers of sessions: ``sessions.changed`` and ``session.message``. Pure.

``session.message``: an accepted message, or the agent's answer. ``sessions.changed``: the state or the settings of a
session have changed, or it was reset or deleted.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from doors.websocket.frames import milliseconds, present
from doors.websocket.peer import Audience
from wire.call_parts import CallPage
from wire.messages import CallDetails, ErrorBody, TokenUsage, ToolCallView

_encode = msgspec.json.Encoder().encode


class Told(NamedTuple):
    """An event to send: its name, its payload as JSON."""

    event: str
    payload: bytes
    is_droppable: bool = False
    old: bytes | None = None
    """What peers of version 3 get instead; empty: nothing."""
    audience: Audience = Audience.ALL
    session: str = ""
    """The session it is about, where the audience depends on it."""


class Moment(NamedTuple):
    """Whose event it is, and when."""

    session: str
    run_id: str
    seq: int
    ts: float


# --- text -------------------------------------------------------------------------------------------------------------


def assistant(moment: Moment, delta: str, text: str | None) -> Told:
    """More has been said; ``text`` is all of it, None where that cannot be told."""
    return _agent(moment, "assistant", {**present(text=text), "delta": delta}, is_droppable=True)


def chat_delta(moment: Moment, delta: str, text: str | None) -> Told:
    """The same for a chat. Version 3 knows the whole text only."""
    facts: dict[str, Any] = {**_chat_head(moment), "state": "delta"}
    message = {} if text is None else {"message": _message(moment, text)}
    old = b"" if text is None else _encode({**facts, **message})
    return Told("chat", _encode({**facts, "deltaText": delta, **message}), is_droppable=True, old=old)


# --- all else ---------------------------------------------------------------------------------------------------------


class _Call(msgspec.Struct):
    call: ToolCallView
    tail: str | None = None
    error: str | None = None
    result: str | None = None
    details: CallDetails | None = None


_FAILED = frozenset({"FAILED", "DENIED", "SEALED"})
"""States in which a call has ended without success."""


class _Question(msgspec.Struct):
    """``shown``: the whole call, or its beginning and the length of the rest."""

    call: ToolCallView
    reason: str | None = None
    shown: CallPage | None = None


class _Compaction(msgspec.Struct):
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class _Error(msgspec.Struct):
    message: str = ""
    severity: str | None = None
    phase: str | None = None


class _Done(msgspec.Struct):
    reason: str = "completed"
    text: str = ""
    truncated: bool = False
    error: ErrorBody | None = None
    usage: TokenUsage | None = None
    media: list[dict[str, Any]] = []
    silent: bool = False


class _Decision(msgspec.Struct):
    call_id: str
    decision: str
    by: str | None = None


def picture(moment: Moment, kind: str, data: msgspec.Raw, said: str | None) -> Iterable[Told]:
    """What is told of an event of that kind. ``said``: the run's text so far, where it is known."""
    read = _PICTURES.get(kind)
    return () if read is None else read(moment, kind, data, said)


def _start(moment: Moment, _kind: str, _data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    return [_agent(moment, "lifecycle", {"phase": "start", "startedAt": milliseconds(moment.ts)})]


def _tool(moment: Moment, kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    event = msgspec.json.decode(data, type=_Call)
    is_update = kind == "tool:update"
    facts = _call_facts("update" if is_update else "start", event.call)
    if is_update:
        facts["partialResult"] = event.tail or ""
    return [_agent(moment, "tool", facts, is_droppable=is_update)]


def call_id_of(data: msgspec.Raw) -> str:
    """The id of the call that an event is about."""
    return msgspec.json.decode(data, type=_Call).call.id


def tool_result(moment: Moment, data: msgspec.Raw, error: str | None = None) -> Told:
    """The one ``result`` of a call. ``data``: of its last event; ``error``: of an earlier one."""
    event = msgspec.json.decode(data, type=_Call)
    error = event.error if error is None else error
    facts = {
        **_call_facts("result", event.call),
        "isError": error is not None or event.call.state in _FAILED,
        "result": next((text for text in (event.result, error, event.tail) if text is not None), ""),
        **present(durationMs=event.call.duration_ms, details=event.details),
    }
    return _agent(moment, "tool", facts)


def error_of(data: msgspec.Raw) -> str:
    """The error of a call."""
    return msgspec.json.decode(data, type=_Call).error or ""


def _call_facts(phase: str, call: ToolCallView) -> dict[str, Any]:
    return {"phase": phase, "toolCallId": call.id, "name": call.name, **present(meta=call.input_preview or None)}


def _compaction(moment: Moment, kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    event = msgspec.json.decode(data, type=_Compaction)
    more = present(reason=event.reason, aborted=event.aborted or None, error=event.error)
    return [_agent(moment, "compaction", {"phase": kind.rpartition(":")[2], **more})]


def _error(moment: Moment, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    event = msgspec.json.decode(data, type=_Error)
    return [_agent(moment, "error", {"error": event.message, **present(severity=event.severity, phase=event.phase)})]


def _done(moment: Moment, _kind: str, data: msgspec.Raw, said: str | None) -> Iterable[Told]:
    event = msgspec.json.decode(data, type=_Done)
    ended: dict[str, Any] = {"endedAt": milliseconds(moment.ts), "stopReason": event.reason}
    if event.error is None:
        ended = {"phase": "end", **ended}
        chat = _final(moment, event)
    elif event.error.code == "aborted":
        ended = {"phase": "end", "aborted": True, **ended}
        chat = {"state": "aborted", **({"message": _message(moment, said)} if said else {})}
    else:
        ended = {"phase": "error", "error": event.error.message, "code": event.error.code, **ended}
        kind = "timeout" if event.reason == "timeout" else "unknown"
        chat = {"state": "error", "errorMessage": event.error.message, "errorKind": kind}
    payload = _encode({**_chat_head(moment), **chat, "stopReason": event.reason})
    return [_agent(moment, "lifecycle", ended), Told("chat", payload)]


def _final(moment: Moment, event: _Done) -> dict[str, Any]:
    """A run that chose to say nothing has no message."""
    chat: dict[str, Any] = {"state": "final"}
    if not event.silent:
        more = present(media=event.media or None, truncated=event.truncated or None)
        chat["message"] = {**_message(moment, event.text), **more}
    return {**chat, **present(usage=event.usage)}


def _permission(moment: Moment, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    question = msgspec.json.decode(data, type=_Question)
    call, page = question.call, question.shown
    command = [part.text for part in page.parts if part.name == "command"] if page is not None else []
    request = {
        "command": command[0] if command else call.input_preview,
        "tool": call.name,
        "sessionKey": moment.session,
        "runId": moment.run_id,
        **present(reason=question.reason, shown=page),
    }
    return [_approval("requested", {"id": call.id, "request": request, "createdAtMs": milliseconds(moment.ts)})]


def _decided(moment: Moment, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[Told]:
    event = msgspec.json.decode(data, type=_Decision)
    decision = "allow-once" if event.decision == "allow" else event.decision
    facts = {"id": event.call_id, "decision": decision, "ts": milliseconds(moment.ts), "sessionKey": moment.session}
    return [_approval("resolved", {**facts, **present(resolvedBy=event.by)})]


_PICTURES: dict[str, Callable[[Moment, str, msgspec.Raw, str | None], Iterable[Told]]] = {
    "run:start": _start,
    "tool:start": _tool,
    "tool:update": _tool,
    "compaction:start": _compaction,
    "compaction:end": _compaction,
    "error": _error,
    "done": _done,
    "permission_required": _permission,
    "permission_decided": _decided,
}


# --- in common --------------------------------------------------------------------------------------------------------


def _agent(moment: Moment, stream: str, data: dict[str, Any], *, is_droppable: bool = False) -> Told:
    payload = {
        "runId": moment.run_id,
        "seq": moment.seq,
        "stream": stream,
        "ts": milliseconds(moment.ts),
        "sessionKey": moment.session,
        "data": data,
    }
    return Told("agent", _encode(payload), is_droppable=is_droppable)


def _approval(what: str, payload: dict[str, Any]) -> Told:
    return Told(f"exec.approval.{what}", _encode(payload), audience=Audience.APPROVERS)


def _chat_head(moment: Moment) -> dict[str, Any]:
    return {"runId": moment.run_id, "sessionKey": moment.session, "seq": moment.seq}


def _message(moment: Moment, text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": milliseconds(moment.ts)}


CHANGES = {
    "state_changed": "state",
    "session_patched": "patch",
    "session_reset": "reset",
    "session_deleted": "delete",
}
"""The gateway's events, with the ``reason`` of each."""
MESSAGES = frozenset({"run:accepted", "done"})


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
