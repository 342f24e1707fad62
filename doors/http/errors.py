"""Errors over HTTP: one shape of answer, and a status for each kind of error.

``{"error": {"code", "message", "details"?}}`` with the code of ``errors``; ``Retry-After`` where the pool knows it.
"""

import logging
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from errors import (
    AcquireTimeout,
    Conflict,
    InternalError,
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProfileBroken,
    RequestTimeout,
    RunAborted,
    RunInterrupted,
    SubscriberBehind,
    UsageError,
    WorkerError,
    single_cause,
)

_logger = logging.getLogger("pool.http")
_STATUS: tuple[tuple[type[PoolError], HTTPStatus], ...] = (
    (UsageError, HTTPStatus.BAD_REQUEST),
    (Conflict, HTTPStatus.CONFLICT),
    (RunAborted, HTTPStatus.CONFLICT),
    (RunInterrupted, HTTPStatus.CONFLICT),
    (SubscriberBehind, HTTPStatus.GONE),
    (PoolSaturated, HTTPStatus.SERVICE_UNAVAILABLE),
    (PoolClosed, HTTPStatus.SERVICE_UNAVAILABLE),
    (ProfileBroken, HTTPStatus.SERVICE_UNAVAILABLE),
    (AcquireTimeout, HTTPStatus.GATEWAY_TIMEOUT),
    (RequestTimeout, HTTPStatus.GATEWAY_TIMEOUT),
    (WorkerError, HTTPStatus.BAD_GATEWAY),
    (InternalError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


_STATUS_NAMES = {HTTPStatus(413): "content_too_large"}
"""Those that Python 3.13 has renamed, as the standard (RFC 9110) has them."""


class HttpError(UsageError):
    """What HTTP itself refuses: no token, a foreign page, too large a body. ``headers`` belong to the answer."""

    def __init__(self, status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class TooManyRequests(HttpError):
    """Requests, of one token or address; ``retry_after`` in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(HTTPStatus.TOO_MANY_REQUESTS, message)
        self.details["retry_after"] = retry_after


Render = Callable[[PoolError], Response]
"""Makes the answer of an error: a door may have a shape of its own."""


def status_of(error: PoolError) -> HTTPStatus:
    """The status for an error: the caller's fault is 4xx, the supervisor's or a worker's 5xx."""
    if isinstance(error, HttpError):
        return error.status
    found = (status for kind, status in _STATUS if isinstance(error, kind))
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def code_of(error: PoolError) -> str:
    """The stable name of an error: its own code, or of what HTTP refuses the status in words."""
    if not isinstance(error, HttpError):
        return error.code
    return _STATUS_NAMES.get(error.status) or error.status.name.lower()


def headers_of(error: PoolError) -> dict[str, str]:
    """Headers that belong to an error's answer."""
    retry = {} if error.retry_after is None else {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    return {**retry, **(error.headers if isinstance(error, HttpError) else {})}


def render_error(error: PoolError) -> Response:
    """The answer of an error in the door's own shape."""
    body: dict[str, Any] = {"code": code_of(error), "message": error.message}
    try:
        return json_response({"error": {**body, "details": error.details}} if error.details else {"error": body}, error)
    except (TypeError, ValueError):
        return json_response({"error": body}, error)  # details that JSON cannot hold are left out


def json_response(content: Any, error: PoolError | None = None) -> Response:
    """Anything as JSON; with the status of ``error`` where there is one. Raises TypeError for what is no JSON."""
    body = msgspec.json.encode(content)
    if error is None:
        return Response(body, media_type="application/json")
    return Response(body, status_of(error), headers_of(error), media_type="application/json")


def as_pool_error(error: Exception, what: str) -> PoolError:
    """The error to answer with; a defect behind the door is logged."""
    cause = single_cause(error)
    if isinstance(cause, PoolError):
        return cause
    _logger.error("%s failed", what, exc_info=error)
    return InternalError(f"the supervisor failed to answer {what}: {type(cause).__name__}: {cause}")
