"""Bodies of requests: bounded in size, in time, and in what all of them together may hold."""

from http import HTTPStatus

import trio
from starlette.requests import ClientDisconnect, Request

from doors.http.refusals import Refusal
from doors.http.services import Services, visit_of

__all__ = ["read_body"]


async def read_body(request: Request, services: Services) -> bytes:
    """All of the body. It counts in the budget of all bodies until the request ends.

    Raises Refusal (413, 408, 400 where the peer has left) and PoolSaturated (503).
    """
    settings = services.settings
    share, limit = visit_of(request).share, int(settings.max_body)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    try:
        with trio.fail_after(settings.body_timeout):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                share.charge(size)
    except trio.TooSlowError as exc:
        text = f"the body did not arrive within {settings.body_timeout:g} s"
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, text) from exc
    except ClientDisconnect as exc:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the peer left before its body had arrived") from exc
    return b"".join(parts)


def _too_large(limit: int) -> Refusal:
    text = f"the body is too large: one request may have {limit:,} bytes (http.max_body)"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
