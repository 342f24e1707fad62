"""Methods about sessions: list, look, begin anew, delete, read what was said."""

from typing import Any

from gateway.caller import Caller
from gateway.requests import HistoryRequest, NoParams, PatchRequest, ResetRequest, SessionRequest
from gateway.service import Gateway
from gateway.session_desk import SessionView
from router.keys import check_session_key

__all__ = ["SessionMethods"]


class SessionMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._desk = gateway.session_desk

    async def list(self, _params: NoParams, _caller: Caller) -> list[SessionView]:
        """Every session, the one used last first."""
        return self._desk.views()

    async def get(self, params: SessionRequest, _caller: Caller) -> SessionView:
        """One session."""
        return self._desk.view(params.session)

    async def patch(self, params: PatchRequest, _caller: Caller) -> SessionView:
        """Change a session's own settings, from the next turn on."""
        return self._desk.patch(params)

    async def reset(self, params: ResetRequest, _caller: Caller) -> Any:
        """Begin a new conversation; the transcript of the old one stays."""
        session = check_session_key(params.session)
        self._desk.view(session)
        return {"session": session, "reset": True, "ended": await self._desk.reset(session, force=params.force)}

    async def delete(self, params: SessionRequest, _caller: Caller) -> Any:
        """Forget a session with its conversation, and end its background commands."""
        ended = self._desk.running(self._desk.view(params.session).key)
        removed = await self._desk.delete(params.session)
        return {"session": params.session, "deleted": True, "removed": removed, "ended": ended}

    async def history(self, params: HistoryRequest, _caller: Caller) -> Any:
        """The latest messages, oldest first."""
        return {"session": params.session, "messages": await self._desk.history(params.session, params.limit)}
