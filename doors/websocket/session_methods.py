"""``sessions.*``: the conversations there are, and what can be done to them."""

import time
from typing import Annotated, Any

import msgspec

from doors.websocket.request import Params, Request
from doors.websocket.shapes import milliseconds, present
from errors import UsageError
from gateway.session_desk import SessionView

__all__ = [
    "CompactParams",
    "DeleteParams",
    "GetParams",
    "ListParams",
    "ResetParams",
    "compact",
    "delete",
    "get",
    "list_sessions",
    "reset",
]

Count = Annotated[int, msgspec.Meta(ge=1)]


class ListParams(msgspec.Struct, rename="camel"):
    """``sessions.list``: at most ``limit``, used within the last ``active_minutes``, of one agent."""

    limit: Count | None = None
    active_minutes: Count | None = None
    search: str | None = None
    agent_id: str | None = None


class GetParams(msgspec.Struct, rename="camel"):
    """``sessions.get``: with the last ``limit`` messages; 0 = without any."""

    key: str | None = None
    session_key: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 200


class ResetParams(msgspec.Struct, rename="camel"):
    """``sessions.reset``; ``force``: also where commands run in the background, which end."""

    key: str
    force: bool = False


class DeleteParams(msgspec.Struct, rename="camel"):
    """``sessions.delete``."""

    key: str
    delete_transcript: bool = True


class CompactParams(msgspec.Struct, rename="camel"):
    """``sessions.compact``."""

    key: str
    instructions: str | None = None


async def list_sessions(request: Request, params: ListParams) -> Params:
    """The one used last first."""
    now = time.time()
    views: list[SessionView] = await request.call("sessions.list")
    if params.active_minutes is not None:
        views = [view for view in views if view.updated_at >= now - 60 * params.active_minutes]
    if params.agent_id is not None:
        views = [view for view in views if view.agent == params.agent_id.lower()]
    if params.search:
        views = [view for view in views if params.search.lower() in view.key.lower()]
    return {"ts": milliseconds(now), "count": len(views), "sessions": [_row(view) for view in views[: params.limit]]}


async def get(request: Request, params: GetParams) -> Params:
    """One session, with what was said last in it."""
    key = params.key or params.session_key
    if key is None:
        raise UsageError("sessions.get needs a key")
    view = await request.call("sessions.get", {"session": key})
    messages = []
    if params.limit:
        messages = (await request.call("sessions.history", {"session": key, "limit": params.limit}))["messages"]
    return {"key": view.key, "session": _row(view), "messages": messages}


async def reset(request: Request, params: ResetParams) -> Params:
    """Begin a new conversation; the transcript of the old one stays."""
    done = await request.call("sessions.reset", {"session": params.key, "force": params.force})
    view = await request.call("sessions.get", {"session": params.key})
    return {"ok": True, "key": done["session"], "entry": _row(view)}


async def delete(request: Request, params: DeleteParams) -> Params:
    """Forget a session with its transcript."""
    if not params.delete_transcript:
        raise UsageError("a session's transcript goes with it; to keep it, reset the session instead")
    done = await request.call("sessions.delete", {"session": params.key})
    return {"ok": True, "key": done["session"], "deleted": done["deleted"], "archived": []}


async def compact(request: Request, params: CompactParams) -> Params:
    """Have the conversation summarised as soon as the session is free; how it goes is told as events."""
    view = await request.call("sessions.get", {"session": params.key})
    text = f"/compact {params.instructions or ''}".strip()
    outcome = await request.call("prompt", {"session": view.key, "text": text})
    return {"ok": True, "key": view.key, "compacted": False, "reason": outcome.text}


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
        **present(
            model=view.model,
            thinkingLevel=view.thinking,
            queueMode=view.queue_mode,
            lastRunId=view.last_run,
            lastChannel=view.channel,
        ),
    }
