"""``sessions.subscribe`` and ``sessions.messages.subscribe``: events of sessions for one connection."""

import msgspec

from doors.websocket.request import Params, Request
from gateway.requests import SessionKey
from router.keys import check_session_key

__all__ = ["FollowParams", "MessagesParams", "follow", "follow_messages", "leave", "leave_messages"]


class FollowParams(msgspec.Struct):
    """``sessions.subscribe`` and ``sessions.unsubscribe``: all sessions."""


class MessagesParams(msgspec.Struct):
    """``sessions.messages.subscribe`` and ``.unsubscribe``: one session, which need not be there yet."""

    key: SessionKey


async def follow(request: Request, _params: FollowParams) -> Params:
    """Send ``sessions.changed`` to the connection from now on."""
    request.subscriptions.sessions = True
    return {"subscribed": True}


async def leave(request: Request, _params: FollowParams) -> Params:
    """Stop sending it."""
    request.subscriptions.sessions = False
    return {"subscribed": False}


async def follow_messages(request: Request, params: MessagesParams) -> Params:
    """Send ``session.message`` of a session from now on. Raises PoolSaturated at ``MOST_SESSIONS``."""
    key = check_session_key(params.key)
    request.subscriptions.follow(key)
    return {"subscribed": True, "key": key}


async def leave_messages(request: Request, params: MessagesParams) -> Params:
    """Stop sending them."""
    key = check_session_key(params.key)
    request.subscriptions.leave(key)
    return {"subscribed": False, "key": key}
