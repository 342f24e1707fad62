"""What goes wrong, in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``, with a status for each kind.

``x-should-retry`` tells OpenAI's clients, which repeat a failed request by themselves, whether that is wise: not where
a turn was begun, for the agent may have done something already.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from doors.http.refusals import Refusal, code_of, headers_of, status_of
from errors import AcquireTimeout, PoolClosed, PoolError, PoolSaturated, ProfileBroken, WorkerRefused

__all__ = ["UnknownModel", "error_body", "render"]

_CODES = {HTTPStatus.UNAUTHORIZED: "invalid_api_key"}
_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class UnknownModel(Refusal):
    """There is no agent of that name."""

    def __init__(self, model: str, agents: list[str]) -> None:
        there_are = ", ".join(agents[:20])
        text = f"there is no model {model[:100]!r} here; a model is an agent of the pool: {there_are}"
        super().__init__(HTTPStatus.NOT_FOUND, text)
        self.details["param"] = "model"


def render(error: PoolError) -> Response:
    """The answer of an error."""
    headers = {**headers_of(error), "x-should-retry": "true" if _may_be_repeated(error) else "false"}
    if isinstance(error, PoolSaturated):
        headers.setdefault("retry-after", "1")
    return Response(error_body(error), _status(error), headers, media_type="application/json")


def error_body(error: PoolError) -> bytes:
    """The body of that answer; the last message of a stream that fails."""
    status = _status(error)
    usual = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    param = error.details.get("param")
    body: dict[str, Any] = {
        "message": error.message,
        "type": _TYPES.get(status, usual),
        "param": param if isinstance(param, str) else None,
        "code": _code(error, status),
    }
    return msgspec.json.encode({"error": body})


def _status(error: PoolError) -> HTTPStatus:
    if isinstance(error, PoolSaturated):
        return HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.BAD_REQUEST if _is_the_callers(error) else status_of(error)


def _code(error: PoolError, status: HTTPStatus) -> str:
    if isinstance(error, UnknownModel):
        return "model_not_found"
    return _CODES.get(status) or code_of(error)


def _is_the_callers(error: PoolError) -> bool:
    """The agent has looked at tools, or at results of tools, and found them wrong."""
    return isinstance(error, WorkerRefused) and error.details.get("worker_code") == "invalid_params"


def _may_be_repeated(error: PoolError) -> bool:
    """Whether nothing has been begun, and it may go well another time."""
    if isinstance(error, PoolClosed):
        return "cut_short" not in error.details
    if isinstance(error, Refusal):
        return error.status in _PASSING
    return isinstance(error, PoolSaturated | AcquireTimeout | ProfileBroken)
