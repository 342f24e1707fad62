"""What every request passes first: the host it names, the page it comes from, who sends it."""

import logging

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from doors.control_limits import InputShare
from doors.http.refusals import Refusal, render_error
from doors.http.services import Services, Visit

__all__ = ["Gate"]

_logger = logging.getLogger("pool.http")


class Gate:
    """ASGI around the whole application."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it in, or answer why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        visit = Visit(scope.setdefault("state", {}).get("peer"), InputShare(self._services.bodies))
        scope["state"]["visit"] = visit
        try:
            self._identify(HTTPConnection(scope), visit)
            await self._app(scope, receive, send)
        finally:
            visit.share.give_back(0)

    def _identify(self, connection: HTTPConnection, visit: Visit) -> None:
        try:
            visit.identity = self._services.access.from_header(connection.headers.get("authorization"))
        except Refusal as exc:
            visit.refusal = exc
        if visit.peer is not None:
            visit.peer.identity = visit.identity


async def refuse_socket(websocket: WebSocket, response: Response) -> None:
    """Answer a handshake as a plain request is answered."""
    await websocket.send_denial_response(response)


async def answer(error: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a handshake, with a refusal."""
    if scope["type"] == "websocket":
        await refuse_socket(WebSocket(scope, receive, send), render_error(error))
    else:
        await render_error(error)(scope, receive, send)
