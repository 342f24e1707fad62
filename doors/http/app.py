"""The ASGI application: routes behind checks of host, origin, token and rate; errors in each door's own shape."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from doors.http.errors import HttpError, as_pool_error, render_error
from doors.http.services import HttpServices, RequestState, RouteSpec, identity_of
from doors.http.settings import is_host_allowed, is_origin_allowed

_logger = logging.getLogger("pool.http")
_DEFAULT_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
_PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, *",  # OpenAI's clients send many of their own
    "access-control-max-age": "600",
}


class AuthMiddleware:
    """Checks each request before the application sees it."""

    def __init__(self, app: ASGIApp, services: HttpServices) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or answer with the refusal."""
        connection = HTTPConnection(scope)
        visit = RequestState(scope.setdefault("state", {}).get("peer"), self._services.new_body_share())
        scope["state"]["visit"] = visit
        send = self._wrap_send(connection, send)
        try:
            self._check(connection, visit)
        except HttpError as exc:
            await _send_response(render_error(exc), scope, receive, send)
        else:
            is_preflight = scope["type"] == "http" and scope["method"] == "OPTIONS"
            if is_preflight and "access-control-request-method" in connection.headers:
                await Response(status_code=HTTPStatus.NO_CONTENT, headers=_PREFLIGHT_HEADERS)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            visit.share.release(0)

    # --- in -----------------------------------------------------------------------------------------------------------

    def _check(self, connection: HTTPConnection, visit: RequestState) -> None:
        self._check_host(connection)
        self._identify(connection, visit)
        address = connection.client.host if connection.client else ""
        self._services.check_rate(visit.identity.rate_key if visit.identity else f"address {address}")

    def _check_host(self, connection: HTTPConnection) -> None:
        settings = self._services.settings
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        server = connection.scope.get("server") or ("", 0)
        if not is_host_allowed(host, str(server[0]), settings.allowed_hosts):
            text = f"this server is not called {host[:100]!r}; names are allowed by http.allowed_hosts"
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, text)
        if origin is not None and not is_origin_allowed(origin, host, settings.allowed_origins):
            text = f"pages of {origin[:100]!r} may not call here; sites are allowed by http.allowed_origins"
            raise HttpError(HTTPStatus.FORBIDDEN, text)

    def _identify(self, connection: HTTPConnection, visit: RequestState) -> None:
        try:
            visit.identity = self._services.access.authenticate_header(connection.headers.get("authorization"))
        except HttpError as exc:
            visit.auth_error = exc
        if visit.peer is not None:
            visit.peer.identity = visit.identity

    # --- out ----------------------------------------------------------------------------------------------------------

    def _wrap_send(self, connection: HTTPConnection, send: Send) -> Send:
        """Adds the default headers to each answer, counts it, and logs a refusal."""
        begun = time.perf_counter()

        async def watched(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                self._add_headers(connection, message)
                self._record_response(connection, message["status"], time.perf_counter() - begun)
            await send(message)

        return watched

    def _add_headers(self, connection: HTTPConnection, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _DEFAULT_HEADERS.items():
            headers.setdefault(name, value)
        origin = connection.headers.get("origin")
        host = connection.headers.get("host", "")
        if origin is not None and is_origin_allowed(origin, host, self._services.settings.allowed_origins):
            headers["access-control-allow-origin"] = origin
            headers.add_vary_header("origin")

    def _record_response(self, connection: HTTPConnection, status: int, seconds: float) -> None:
        self._services.stats.requests[status] += 1
        path = connection.scope["path"]
        _logger.debug("%s %s %s in %.1f ms", connection.scope.get("method", "GET"), path, status, seconds * 1000)
        if status in (401, 403, 421, 429):
            client = connection.client.host if connection.client else None
            self._services.warnings.warn(HTTPStatus(status).phrase, path=path, peer=client)


async def _send_response(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


def build_app(services: HttpServices, openings: Sequence[RouteSpec]) -> ASGIApp:
    """All routes behind ``AuthMiddleware``."""
    app = Starlette(
        routes=[_route(opening) for opening in openings], exception_handlers={HTTPException: _handle_http_exception}
    )
    return AuthMiddleware(app, services)


def _route(opening: RouteSpec) -> BaseRoute:
    if opening.is_socket:
        if opening.scope is not None:
            raise ValueError(f"{opening.path}: a WebSocket identifies its peer itself and takes no scope")
        return WebSocketRoute(opening.path, opening.endpoint)
    return Route(opening.path, _endpoint(opening), methods=list(opening.methods))


def _endpoint(opening: RouteSpec) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            if opening.scope is not None:
                identity_of(request).require_scope(opening.scope)
            answer: Response = await opening.endpoint(request)
        except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
            return opening.render(as_pool_error(exc, request.url.path))
        return answer

    return endpoint


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    """No such path, or another method."""
    assert isinstance(error, HTTPException)  # noqa: S101  # what it is registered for
    status = HTTPStatus(error.status_code)
    text = f"there is no {request.url.path} here" if status is HTTPStatus.NOT_FOUND else status.description
    return render_error(HttpError(status, text, dict(error.headers or {})))
