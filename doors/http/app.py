"""The application behind the port: every opening guarded, every error answered in its door's shape."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from doors.http.gate import Gate, refuse_socket
from doors.http.openings import Opening
from doors.http.refusals import Refusal, render_error, told
from doors.http.services import Services, identity_of

__all__ = ["build_app"]


def build_app(services: Services, openings: Sequence[Opening]) -> ASGIApp:
    """Everything that is served, behind the gate."""
    app = Starlette(routes=[_route(opening) for opening in openings], exception_handlers={HTTPException: _unknown})
    return Gate(app, services)


def _route(opening: Opening) -> BaseRoute:
    if opening.is_socket:
        return WebSocketRoute(opening.path, _socket_endpoint(opening))
    return Route(opening.path, _endpoint(opening), methods=list(opening.methods))


def _endpoint(opening: Opening) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            if opening.scope is not None:
                identity_of(request).need(opening.scope)
            answer: Response = await opening.endpoint(request)
        except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
            return opening.render(told(exc, request.url.path))
        return answer

    return endpoint


def _socket_endpoint(opening: Opening) -> Callable[[WebSocket], Awaitable[None]]:
    async def endpoint(websocket: WebSocket) -> None:
        if opening.scope is not None:
            try:
                identity_of(websocket).need(opening.scope)
            except Refusal as exc:
                await refuse_socket(websocket, opening.render(exc))
                return
        await opening.endpoint(websocket)

    return endpoint


async def _unknown(request: Request, error: Exception) -> Response:
    """No such path, or another method."""
    assert isinstance(error, HTTPException)  # noqa: S101  # what it is registered for
    status = HTTPStatus(error.status_code)
    text = f"there is no {request.url.path} here" if status is HTTPStatus.NOT_FOUND else status.description
    return render_error(Refusal(status, text, dict(error.headers or {})))
