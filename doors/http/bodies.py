"""Bodies of requests: bounded in size, in time, and in what all of them together may hold."""

from http import HTTPStatus

import trio
from starlette.requests import Request

from doors.control_limits import InputShare
from doors.http.refusals import Refusal
from doors.http.services import Services, visit_of

__all__ = ["read_body"]


async def read_body(request: Request, services: Services) -> bytes:
    """All of the body. It counts in the budget of all bodies until the request ends.

    Raises Refusal (413, 408, 400 where the peer has left) and PoolSaturated (503).
    """
    settings = services.settings
    limit = int(settings.max_body)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    with trio.move_on_after(settings.body_timeout):
        return await _read(request, limit, visit_of(request).share)
    raise Refusal(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {settings.body_timeout:g} s")


async def _read(request: Request, limit: int, share: InputShare) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(HTTPStatus.BAD_REQUEST, "the peer left before its body had arrived")
        body += message["body"]
        if len(body) > limit:
            raise _too_large(limit)
        share.charge(len(body))
        if not message["more_body"]:
            return bytes(body)


def _too_large(limit: int) -> Refusal:
    text = f"the body is too large: one request may have {limit:,} bytes (http.max_body)"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
