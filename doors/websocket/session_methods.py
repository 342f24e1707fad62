"""``sessions.*``: list, change and delete sessions, and subscribe to their events."""

import time
from typing import Annotated, Any, Literal

import msgspec

from doors.websocket.frames import milliseconds
from doors.websocket.peer import MethodRequest, NoMethodParams, Params
from errors import UsageError
from gateway.requests import Label, ModelName, SessionKeyText, ThinkingName
from gateway.sessions.admin import SessionView
from router.keys import normalize_session_key
from wire.messages import QueueMode, omit_none

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Switch = Literal["on", "off"]


class SessionListParams(msgspec.Struct, rename="camel"):
    """``sessions.list``: at most ``limit``, used within the last ``active_minutes``, of one agent."""

    limit: PositiveInt | None = None
    active_minutes: PositiveInt | None = None
    search: str | None = None
    agent_id: str | None = None


class SessionGetParams(msgspec.Struct, rename="camel"):
    """``sessions.get``: with the last ``limit`` messages; 0 = without any."""

    key: str | None = None
    session_key: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 200


class SessionResolveParams(msgspec.Struct, rename="camel"):
    """``sessions.resolve``: by exactly one of the first three. ``allowMissing``: a missing session is no error."""

    key: SessionKeyText | None = None
    session_id: SessionKeyText | None = None
    label: Label | None = None
    agent_id: str | None = None
    allow_missing: bool = False


class SessionKeyParams(msgspec.Struct):
    """``sessions.describe``, and the subscriptions to the messages of a session."""

    key: SessionKeyText


class SessionPatchParams(msgspec.Struct, rename="camel"):
    """``sessions.patch``: an absent member changes nothing, null removes the session's own value."""

    key: SessionKeyText
    label: Label | msgspec.UnsetType | None = msgspec.UNSET
    model: ModelName | msgspec.UnsetType | None = msgspec.UNSET
    thinking_level: ThinkingName | msgspec.UnsetType | None = msgspec.UNSET
    verbose_level: Switch | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_level: Switch | msgspec.UnsetType | None = msgspec.UNSET
    queue_mode: QueueMode | msgspec.UnsetType | None = msgspec.UNSET


class SessionResetParams(msgspec.Struct, rename="camel"):
    """``sessions.reset``; ``force``: even if that ends commands in the background."""

    key: str
    force: bool = False


class SessionDeleteParams(msgspec.Struct, rename="camel"):
    """``sessions.delete``."""

    key: str
    delete_transcript: bool = True


class SessionCompactParams(msgspec.Struct, rename="camel"):
    """``sessions.compact``."""

    key: str
    instructions: str | None = None


async def list_sessions(request: MethodRequest, params: SessionListParams) -> Params:
    """The one used last first."""
    now = time.time()
    views: list[SessionView] = await request.call("sessions.list")
    if params.active_minutes is not None:
        views = [view for view in views if view.updated_at >= now - 60 * params.active_minutes]
    if params.agent_id is not None:
        views = [view for view in views if view.agent == params.agent_id.lower()]
    if params.search:
        views = [view for view in views if params.search.lower() in f"{view.key}\n{view.label or ''}".lower()]
    return {"ts": milliseconds(now), "count": len(views), "sessions": [_row(view) for view in views[: params.limit]]}


async def get(request: MethodRequest, params: SessionGetParams) -> Params:
    """One session, with what was said last in it."""
    if (key := params.key or params.session_key) is None:
        raise UsageError("sessions.get needs a key")
    view = await request.call("sessions.get", {"session": key})
    messages = []
    if params.limit:
        messages = (await request.call("sessions.history", {"session": key, "limit": params.limit}))["messages"]
    return {"key": view.key, "session": _row(view), "messages": messages}


async def resolve(request: MethodRequest, params: SessionResolveParams) -> Params:
    """The key of a known session, in its one spelling. Raises UsageError where there is none."""
    view = await _find(request, params)
    if view is not None:
        return {"ok": True, "key": view.key}
    if params.allow_missing:
        return {"ok": False}
    raise UsageError(f"there is no session {params.key or params.session_id or params.label!r}")


async def _find(request: MethodRequest, params: SessionResolveParams) -> SessionView | None:
    if sum(given is not None for given in (params.key, params.session_id, params.label)) != 1:
        raise UsageError("sessions.resolve needs exactly one of key, sessionId and label")
    if name := params.key or params.session_id:
        view = await _find_by_key(request, name)
    else:
        views: list[SessionView] = await request.call("sessions.list")
        view = next((each for each in views if each.label == params.label), None)
    is_others = view is not None and params.agent_id is not None and view.agent != params.agent_id.lower()
    return None if is_others else view


async def _find_by_key(request: MethodRequest, name: str) -> SessionView | None:
    """The session of that name, if there is one. Raises UsageError for an invalid name."""
    key = normalize_session_key(name)
    try:
        view: SessionView = await request.call("sessions.get", {"session": key})
    except UsageError:
        return None
    return view


async def describe(request: MethodRequest, params: SessionKeyParams) -> Params:
    """One session as ``sessions.list`` shows it; null where there is none."""
    view = await _find_by_key(request, params.key)
    return {"session": None if view is None else _row(view)}


async def patch(request: MethodRequest, params: SessionPatchParams) -> Params:
    """Change a session's own settings, from its next turn on."""
    asked = {"session": params.key}
    for ours, theirs in _SETTING_MEMBERS.items():
        value = getattr(params, theirs)
        if value is not msgspec.UNSET:
            asked[ours] = value == "on" if ours in _SWITCH_SETTINGS else value
    view = await request.call_with_nulls("sessions.patch", asked)
    return {"ok": True, "key": view.key, "entry": _row(view), "resolved": omit_none(model=view.model)}


async def reset(request: MethodRequest, params: SessionResetParams) -> Params:
    """Begin a new conversation; the transcript of the old one stays."""
    done = await request.call("sessions.reset", {"session": params.key, "force": params.force})
    view = await request.call("sessions.get", {"session": params.key})
    return {"ok": True, "key": done["session"], "entry": _row(view)}


async def delete(request: MethodRequest, params: SessionDeleteParams) -> Params:
    """Forget a session with its transcript."""
    if not params.delete_transcript:
        raise UsageError("a session's transcript goes with it; to keep it, reset the session instead")
    done = await request.call("sessions.delete", {"session": params.key})
    return {"ok": True, "key": done["session"], "deleted": done["deleted"], "archived": []}


async def compact(request: MethodRequest, params: SessionCompactParams) -> Params:
    """Compact the conversation as soon as the session is free; events report how it goes."""
    view = await request.call("sessions.get", {"session": params.key})
    text = f"/compact {params.instructions or ''}".strip()
    outcome = await request.call("prompt", {"session": view.key, "text": text})
    return {"ok": True, "key": view.key, "compacted": False, "reason": outcome.text}


_SWITCH_SETTINGS = ("verbose", "reasoning")
_SETTING_MEMBERS = {name: name for name in ("label", "model", "queue_mode")}
_SETTING_MEMBERS |= {name: f"{name}_level" for name in ("thinking", *_SWITCH_SETTINGS)}
"""Our names of the settings, with the protocol's."""


def _row(view: SessionView) -> dict[str, Any]:
    return {
        "key": view.key,
        "sessionId": view.key,
        "kind": "group" if ":group:" in view.key or ":channel:" in view.key else "direct",
        "agentId": view.agent,
        "role": view.role,
        "state": view.state,
        "createdAt": milliseconds(view.created_at),
        "updatedAt": milliseconds(view.updated_at),
        "waiting": view.waiting,
        **omit_none(
            label=view.label,
            model=view.model,
            thinkingLevel=view.thinking,
            queueMode=view.queue_mode,
            lastRunId=view.last_run,
            lastChannel=view.channel,
        ),
    }


async def subscribe(request: MethodRequest, _params: NoMethodParams, *, wanted: bool = True) -> Params:
    """Send ``sessions.changed`` to the connection from now on, or no more where not ``wanted``."""
    request.subscriptions.sessions = wanted
    return {"subscribed": wanted}


async def subscribe_messages(request: MethodRequest, params: SessionKeyParams, *, wanted: bool = True) -> Params:
    """The same for ``session.message`` of one session, which need not be there yet.

    Raises PoolSaturated at ``MOST_SESSIONS``.
    """
    key = normalize_session_key(params.key)
    (request.subscriptions.subscribe_messages if wanted else request.subscriptions.unsubscribe_messages)(key)
    return {"subscribed": wanted, "key": key}
