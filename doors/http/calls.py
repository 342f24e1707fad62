"""``POST /api/{method}``: any method of the control socket, its parameters as a JSON object, its result as JSON."""

import uuid
from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doors.http.bodies import read_body
from doors.http.caller import HttpCaller
from doors.http.openings import Opening
from doors.http.refusals import Refusal, json_response
from doors.http.scopes import Scope
from doors.http.services import Services, identity_of
from errors import PoolClosed, UsageError

__all__ = ["routes"]

_ON_A_CONNECTION = frozenset({"subscribe", "unsubscribe", "acquire", "release"})
"""Methods that mean something on a connection only."""


def routes(services: Services) -> Sequence[Opening]:
    """The one opening."""

    async def call(request: Request) -> Response:
        return await _call(request, services)

    return [Opening("/api/{method}", call, Scope.READ, ("POST",))]


async def _call(request: Request, services: Services) -> Response:
    identity = identity_of(request)
    method = str(request.path_params["method"])
    if method in _ON_A_CONNECTION:
        raise UsageError(f"{method} needs a connection that stays; over HTTP, GET /events follows events")
    identity.check(method)
    params = await _params(request, services)
    result = None
    with services.closing.scope() as scope:
        result = await services.call(method, params, HttpCaller(identity, uuid.uuid4().hex))
    if scope.cancelled_caught:
        raise PoolClosed("the supervisor closed before the request had ended", cut_short=True)
    return json_response(result)


async def _params(request: Request, services: Services) -> msgspec.Raw:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(request, services)
    if kind != "application/json" and (kind or body):
        text = "the body must be a JSON object, sent with content-type: application/json"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return msgspec.Raw(body or b"{}")
