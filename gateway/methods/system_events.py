"""Methods about system events: have a session told something with its next turn, look at what it is to be told."""

from typing import Any

from errors import UsageError
from gateway.caller import Caller
from gateway.requests import InjectRequest, SessionRequest
from gateway.service import Gateway
from router.keys import check_session_key

__all__ = ["SystemEventMethods"]


class SystemEventMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._events = gateway.system_events

    async def inject(self, params: InjectRequest, _caller: Caller) -> Any:
        """Queue an event, durably; ``event`` null: it is the one queued last again, and tells nothing new."""
        session = check_session_key(params.session)
        if not params.text.strip():
            raise UsageError("the text is empty; say what has happened", session=session)
        event = self._events.inject(session, params.text, kind=params.kind)
        await self._events.kept()
        return {"session": session, "event": event}

    async def peek(self, params: SessionRequest, _caller: Caller) -> Any:
        """What the session is to be told, the oldest first; it stays."""
        session = check_session_key(params.session)
        return {"session": session, "events": self._events.peek(session)}
