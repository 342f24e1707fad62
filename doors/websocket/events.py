"""Payloads of the protocol's events. Pure.

``agent``: ``{runId, seq, stream, ts, sessionKey, data}`` with the streams lifecycle, assistant, tool, compaction and
error; ``chat``: ``{runId, sessionKey, seq, state, message?}`` with the states delta, final, aborted and error;
``session.message``: an accepted message, or an agent's answer; ``sessions.changed``: a session's state or settings have
changed, or it was reset or deleted. ``seq`` is the gateway's, for ``GET /events?since=``. Times are Unix milliseconds.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from doors.websocket.frames import milliseconds
from doors.websocket.peer import Audience
from wire.call_page import CallPage
from wire.events import EventType
from wire.messages import CallDetails, ErrorBody, TokenUsage, ToolCallView, omit_none
from wire.terminal import with_last_words

_encode = msgspec.json.Encoder().encode


class OutboundEvent(NamedTuple):
    """An event to send: its name, its payload as JSON."""

    event: str
    payload: bytes
    is_droppable: bool = False
    v3_payload: bytes | None = None
    """What peers of version 3 get instead; empty: nothing."""
    audience: Audience = Audience.ALL
    session: str = ""
    """The session it is about, where the audience depends on it."""


class EventContext(NamedTuple):
    """Whose event it is, and when."""

    session: str
    run_id: str
    seq: int
    ts: float


# --- text -------------------------------------------------------------------------------------------------------------


def assistant_delta(moment: EventContext, delta: str, text: str | None) -> OutboundEvent:
    """New text; ``text`` is all of it, None where that is unknown."""
    return _agent_event(moment, "assistant", {**omit_none(text=text), "delta": delta}, is_droppable=True)


def chat_delta(moment: EventContext, delta: str, text: str | None) -> OutboundEvent:
    """The same for a chat. Version 3 knows the whole text only."""
    facts: dict[str, Any] = {**_chat_head(moment), "state": "delta"}
    message = {} if text is None else {"message": _message(moment, text)}
    old = b"" if text is None else _encode({**facts, **message})
    return OutboundEvent("chat", _encode({**facts, "deltaText": delta, **message}), is_droppable=True, v3_payload=old)


# --- all else ---------------------------------------------------------------------------------------------------------


class _ToolEventData(msgspec.Struct):
    call: ToolCallView
    tail: str | None = None
    error: str | None = None
    result: str | None = None
    details: CallDetails | None = None


_FAILED_STATES = frozenset({"FAILED", "DENIED", "SEALED"})
"""States in which a call has ended without success."""


class _PermissionEventData(msgspec.Struct):
    """``shown``: the whole call, or its beginning and the length of the rest."""

    call: ToolCallView
    reason: str | None = None
    shown: CallPage | None = None


class _CompactionEventData(msgspec.Struct):
    reason: str | None = None
    aborted: bool = False
    error: str | None = None


class _ErrorEventData(msgspec.Struct):
    message: str = ""
    severity: str | None = None
    phase: str | None = None


class _SaidEventData(msgspec.Struct):
    """Of ``run:accepted`` and of ``done``."""

    reason: str = "completed"
    text: str = ""
    truncated: bool = False
    error: ErrorBody | None = None
    usage: TokenUsage | None = None
    media: list[dict[str, Any]] = []
    silent: bool = False


class _DecisionEventData(msgspec.Struct):
    call_id: str
    decision: str
    by: str | None = None


def translate(moment: EventContext, kind: str, data: msgspec.Raw, said: str | None) -> Iterable[OutboundEvent]:
    """The protocol's events for one of that kind. ``said``: the run's text so far, where it is known."""
    read = _TRANSLATORS.get(kind)
    return () if read is None else read(moment, kind, data, said)


def _start(moment: EventContext, _kind: str, _data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    return [_agent_event(moment, "lifecycle", {"phase": "start", "startedAt": milliseconds(moment.ts)})]


def _tool(moment: EventContext, kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    event = msgspec.json.decode(data, type=_ToolEventData)
    is_update = kind == "tool:update"
    facts = _call_fields("update" if is_update else "start", event.call)
    if is_update:
        facts["partialResult"] = event.tail or ""
    return [_agent_event(moment, "tool", facts, is_droppable=is_update)]


def call_id_of(data: msgspec.Raw) -> str:
    """The id of the call that an event is about."""
    return msgspec.json.decode(data, type=_ToolEventData).call.id


def tool_result(moment: EventContext, data: msgspec.Raw, error: str | None = None) -> OutboundEvent:
    """The one ``result`` of a call. ``data``: of its last event; ``error``: of an earlier one."""
    event = msgspec.json.decode(data, type=_ToolEventData)
    error = event.error if error is None else error
    facts = {
        **_call_fields("result", event.call),
        "isError": error is not None or event.call.state in _FAILED_STATES,
        "result": next((text for text in (event.result, error, event.tail) if text is not None), ""),
        **omit_none(durationMs=event.call.duration_ms, details=event.details),
    }
    return _agent_event(moment, "tool", facts)


def error_of(data: msgspec.Raw) -> str:
    """The error of a call."""
    return msgspec.json.decode(data, type=_ToolEventData).error or ""


def _call_fields(phase: str, call: ToolCallView) -> dict[str, Any]:
    return {"phase": phase, "toolCallId": call.id, "name": call.name, **omit_none(meta=call.input_preview or None)}


def _compaction(moment: EventContext, kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    event = msgspec.json.decode(data, type=_CompactionEventData)
    more = omit_none(reason=event.reason, aborted=event.aborted or None, error=event.error)
    return [_agent_event(moment, "compaction", {"phase": kind.rpartition(":")[2], **more})]


def _error(moment: EventContext, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    event = msgspec.json.decode(data, type=_ErrorEventData)
    return [
        _agent_event(moment, "error", {"error": event.message, **omit_none(severity=event.severity, phase=event.phase)})
    ]


def _done(moment: EventContext, _kind: str, data: msgspec.Raw, said: str | None) -> Iterable[OutboundEvent]:
    event = msgspec.json.decode(data, type=_SaidEventData)
    ended: dict[str, Any] = {"endedAt": milliseconds(moment.ts), "stopReason": event.reason}
    if event.error is None:
        ended = {"phase": "end", **ended}
        chat = _final(moment, event)
    elif event.error.code == "aborted":
        ended = {"phase": "end", "aborted": True, **ended}
        chat = {"state": "aborted", **({"message": _message(moment, said)} if said else {})}
    else:
        why = with_last_words(event.error.message, event.error.data.get("stderr_tail"))
        ended = {"phase": "error", "error": why, "code": event.error.code, **ended}
        kind = "timeout" if event.reason == "timeout" else "unknown"
        chat = {"state": "error", "errorMessage": why, "errorKind": kind}
    payload = _encode({**_chat_head(moment), **chat, "stopReason": event.reason})
    return [_agent_event(moment, "lifecycle", ended), OutboundEvent("chat", payload)]


def _final(moment: EventContext, event: _SaidEventData) -> dict[str, Any]:
    """A run that chose to say nothing has no message."""
    chat: dict[str, Any] = {"state": "final"}
    if not event.silent:
        more = omit_none(media=event.media or None, truncated=event.truncated or None)
        chat["message"] = {**_message(moment, event.text), **more}
    return {**chat, **omit_none(usage=event.usage)}


def _permission(moment: EventContext, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    question = msgspec.json.decode(data, type=_PermissionEventData)
    call, page = question.call, question.shown
    command = [part.text for part in page.parts if part.name == "command"] if page is not None else []
    request = {
        "command": command[0] if command else call.input_preview,
        "tool": call.name,
        "sessionKey": moment.session,
        "runId": moment.run_id,
        **omit_none(reason=question.reason, shown=page),
    }
    return [_approval_event("requested", {"id": call.id, "request": request, "createdAtMs": milliseconds(moment.ts)})]


def _decided(moment: EventContext, _kind: str, data: msgspec.Raw, _said: str | None) -> Iterable[OutboundEvent]:
    event = msgspec.json.decode(data, type=_DecisionEventData)
    decision = "allow-once" if event.decision == "allow" else event.decision
    facts = {"id": event.call_id, "decision": decision, "ts": milliseconds(moment.ts), "sessionKey": moment.session}
    return [_approval_event("resolved", {**facts, **omit_none(resolvedBy=event.by)})]


_TRANSLATORS: dict[str, Callable[[EventContext, str, msgspec.Raw, str | None], Iterable[OutboundEvent]]] = {
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


def _agent_event(
    moment: EventContext, stream: str, data: dict[str, Any], *, is_droppable: bool = False
) -> OutboundEvent:
    payload = {
        "runId": moment.run_id,
        "seq": moment.seq,
        "stream": stream,
        "ts": milliseconds(moment.ts),
        "sessionKey": moment.session,
        "data": data,
    }
    return OutboundEvent("agent", _encode(payload), is_droppable=is_droppable)


def _approval_event(what: str, payload: dict[str, Any]) -> OutboundEvent:
    return OutboundEvent(f"exec.approval.{what}", _encode(payload), audience=Audience.APPROVERS)


def _chat_head(moment: EventContext) -> dict[str, Any]:
    return {"runId": moment.run_id, "sessionKey": moment.session, "seq": moment.seq}


def _message(moment: EventContext, text: str, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}], "timestamp": milliseconds(moment.ts)}


SESSION_CHANGE_REASONS = {
    str(type_): type_.display.session_change for type_ in EventType if type_.display.session_change
}
"""The gateway's events, with the ``reason`` of each."""
MESSAGE_EVENTS = frozenset({"run:accepted", "done"})


class _StateEventData(msgspec.Struct):
    to: str | None = None


def session_changed(moment: EventContext, kind: str, data: msgspec.Raw) -> OutboundEvent:
    """The event ``sessions.changed``."""
    facts = {
        "sessionKey": moment.session,
        "reason": SESSION_CHANGE_REASONS[kind],
        "ts": milliseconds(moment.ts),
        "seq": moment.seq,
        **omit_none(state=msgspec.json.decode(data, type=_StateEventData).to),
    }
    return OutboundEvent("sessions.changed", _encode(facts), audience=Audience.SESSIONS)


def session_message(moment: EventContext, kind: str, data: msgspec.Raw) -> Iterable[OutboundEvent]:
    """The event ``session.message``; none for a run without text."""
    said = msgspec.json.decode(data, type=_SaidEventData)
    if not said.text or said.silent or said.error is not None:
        return
    role = "user" if kind == "run:accepted" else "assistant"
    facts = {
        "sessionKey": moment.session,
        "runId": moment.run_id,
        "messageId": f"{moment.run_id}:{role}",
        "messageSeq": moment.seq,
        "message": {**_message(moment, said.text, role), **omit_none(truncated=said.truncated or None)},
    }
    yield OutboundEvent("session.message", _encode(facts), audience=Audience.MESSAGES, session=moment.session)
