"""``sessions.subscribe`` and its kin: what a connection hears of beside the runs."""

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
    """Hear ``sessions.changed`` from now on."""
    request.listening.sessions = True
    return {"subscribed": True}


async def leave(request: Request, _params: FollowParams) -> Params:
    """Hear it no more."""
    request.listening.sessions = False
    return {"subscribed": False}


async def follow_messages(request: Request, params: MessagesParams) -> Params:
    """Hear ``session.message`` of a session from now on. Raises PoolSaturated where too many are followed."""
    key = check_session_key(params.key)
    request.listening.follow(key)
    return {"subscribed": True, "key": key}


async def leave_messages(request: Request, params: MessagesParams) -> Params:
    """Hear them no more."""
    key = check_session_key(params.key)
    request.listening.leave(key)
    return {"subscribed": False, "key": key}
