"""``POST /api/{method}``: any method of the control socket, JSON in and out; ``/health``, ``/ready``, ``/status``.

With ``Accept: text/event-stream`` the answer has the method's pushes too, as server-sent events by their names; the
last one is ``result``, or ``error`` with the body of an error. Bodies are bounded in size, in time, and all together.
"""

import uuid
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ConnectionScope

from doors.budgets import InputShare
from doors.http.access import TokenIdentity
from doors.http.errors import HttpError, as_pool_error, json_response, render_error
from doors.http.services import (
    HttpCaller,
    HttpServices,
    RouteSpec,
    cancel_on_disconnect,
    identity_of,
    request_state,
    trace_of,
)
from doors.http.tokens import Scope
from errors import PoolClosed, UsageError
from wire.framing import DECODE_ERRORS
from wire.sse import STREAM_HEADERS, STREAM_TYPE, event_message


async def read_body(request: Request, services: HttpServices) -> bytes:
    """All of the body. It counts in the budget of all bodies until the request ends.

    Raises HttpError (413, 408, 400 where the peer has left) and PoolSaturated (503).
    """
    settings = services.settings
    limit = int(settings.max_body)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large_error(limit)
    with trio.move_on_after(settings.body_timeout):
        return await _read(request, limit, request_state(request).share)
    raise HttpError(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {settings.body_timeout:g} s")


async def _read(request: Request, limit: int, share: InputShare) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HttpError(HTTPStatus.BAD_REQUEST, "the peer left before its body had arrived")
        body += message["body"]
        if len(body) > limit:
            raise _too_large_error(limit)
        share.charge(len(body))
        if not message["more_body"]:
            return bytes(body)


def _too_large_error(limit: int) -> HttpError:
    text = f"the body is too large: one request may have {limit:,} bytes (http.max_body)"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


_CONNECTION_ONLY_METHODS = frozenset({"subscribe", "unsubscribe", "acquire", "release"})
"""Methods that mean something on a connection only."""
_TRACED_METHODS = frozenset({"agent", "prompt"})
"""Methods whose run is recorded below the span that the header ``traceparent`` names."""


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """The one opening."""
    return [RouteSpec("/api/{method}", partial(_call, services), Scope.READ, ("POST",))]


async def _call(services: HttpServices, request: Request) -> Any:
    identity = identity_of(request)
    method = str(request.path_params["method"])
    if method in _CONNECTION_ONLY_METHODS:
        raise UsageError(f"{method} needs a connection that stays; over HTTP, GET /events follows events")
    if request.query_params:
        raise UsageError(f"{method} takes its parameters in the body, as a JSON object, not in the address")
    identity.require_method(method)
    params = await _params(request, services)
    if method in _TRACED_METHODS and (trace := trace_of(request)):
        params = _with_trace(params, trace)
    if STREAM_TYPE in request.headers.get("accept", ""):
        return _StreamedCall(services, identity, method, params)
    caller = HttpCaller(identity, uuid.uuid4().hex)
    return json_response(await _run(services, method, params, caller, request.receive))


async def _params(request: Request, services: HttpServices) -> msgspec.Raw:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(request, services)
    if kind != "application/json" and (kind or body):
        text = "the body must be a JSON object, sent with content-type: application/json"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return msgspec.Raw(body or b"{}")


def _with_trace(params: msgspec.Raw, trace: dict[str, str]) -> msgspec.Raw:
    """The object in this span, unless it names one; anything else as it is, for the method to refuse."""
    try:
        members = msgspec.json.decode(params, type=dict[str, msgspec.Raw])
    except DECODE_ERRORS:
        return params
    return params if "traceparent" in members else msgspec.Raw(msgspec.json.encode({**trace, **members}))


async def _run(services: HttpServices, method: str, params: msgspec.Raw, caller: HttpCaller, receive: Receive) -> Any:
    """Run it until the server ends, or the peer leaves. A run that it has begun goes on without it."""
    result = None
    with services.shutdown.scope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_disconnect, receive, nursery.cancel_scope)
            result = await services.call(method, params, caller)
            nursery.cancel_scope.cancel()
    if scope.cancelled_caught:
        raise PoolClosed("the supervisor closed before the request had ended", cut_short=True)
    return result


class _StreamedCall:
    """An answer with the pushes of a method before its result."""

    def __init__(self, services: HttpServices, identity: TokenIdentity, method: str, params: msgspec.Raw) -> None:
        self._services = services
        self._method = method
        self._params = params
        self._caller = HttpCaller(identity, uuid.uuid4().hex, take=self._send_push)
        self._send: Send

    async def __call__(self, _scope: ConnectionScope, receive: Receive, send: Send) -> None:
        """Run the method; stream its pushes and its result."""
        self._send = send
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        try:
            result = await _run(self._services, self._method, self._params, self._caller, receive)
            last = event_message("result", msgspec.json.encode(result))
        except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
            last = event_message("error", bytes(render_error(as_pool_error(exc, self._method)).body))
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_push(self, event: str, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": event_message(event, data), "more_body": True})


def health_routes(services: HttpServices) -> Sequence[RouteSpec]:
    """Three routes; the first two need no token and show nothing else."""

    async def health(_request: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(_request: Request) -> Response:
        mode = (await services.status()).pool.mode
        if services.shutdown.has_begun or mode != "running":
            raise PoolClosed(f"the pool is {'closing' if services.shutdown.has_begun else mode} and begins no turns")
        return json_response({"status": "ready"})

    async def status(request: Request) -> Response:
        return json_response(await services.call("status", {}, HttpCaller(identity_of(request), "status")))

    return [
        RouteSpec("/health", health, None),
        RouteSpec("/ready", ready, None),
        RouteSpec("/status", status, Scope.READ),
    ]
