"""Errors in OpenAI's shape, ``{"error": {"message", "type", "param", "code"}}``, with a status for each kind.

``x-should-retry`` tells OpenAI's clients, which repeat failed requests, whether a repetition is safe: it is not where a
turn was begun, since the agent may have acted already.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from doors.http.errors import HttpError, code_of, headers_of, status_of
from errors import AcquireTimeout, PoolClosed, PoolError, PoolSaturated, ProfileBroken, WorkerRefused
from wire.terminal import with_last_words

_CODES = {HTTPStatus.UNAUTHORIZED: "invalid_api_key"}
_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_RETRYABLE = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class ModelNotFound(HttpError):
    """There is no agent of that name."""

    def __init__(self, model: str, agents: list[str]) -> None:
        there_are = ", ".join(agents[:20])
        text = f"there is no model {model[:100]!r} here; a model is an agent of the pool: {there_are}"
        super().__init__(HTTPStatus.NOT_FOUND, text)
        self.details["param"] = "model"


class ResponseNotFound(HttpError):
    """No response has this id, or it is no longer kept."""

    def __init__(self, given: str) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, f"there is no response {given[:200]!r}, or it is no longer kept")
        self.details["param"] = "response_id"


class UnfitAnswer(HttpError):
    """Two answers of the agent did not fit what was asked for."""

    def __init__(self, model: str, problem: str) -> None:
        text = f"the agent {model!r} was asked twice, and neither answer is what was asked for: {problem}"
        super().__init__(HTTPStatus.BAD_GATEWAY, text)


class PreviousResponseNotFound(HttpError):
    """The response of ``previous_response_id`` cannot be continued."""

    def __init__(self, problem: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, f"previous_response_id: this response cannot be continued: {problem}")
        self.details["param"] = "previous_response_id"


_ERROR_CODES: dict[type[PoolError], str] = {
    ModelNotFound: "model_not_found",
    UnfitAnswer: "unfit_answer",
    ResponseNotFound: "response_not_found",
    PreviousResponseNotFound: "previous_response_not_found",
}


def render(error: PoolError) -> Response:
    """The answer of an error."""
    headers = {**headers_of(error), "x-should-retry": "true" if _is_retryable(error) else "false"}
    if isinstance(error, PoolSaturated):
        headers.setdefault("retry-after", "1")
    return Response(error_body(error), _status(error), headers, media_type="application/json")


def error_body(error: PoolError) -> bytes:
    """The body of that answer; the last message of a stream that fails."""
    return msgspec.json.encode({"error": error_fields(error)})


def error_fields(error: PoolError) -> dict[str, Any]:
    """The fields of an error: message, type, param and code."""
    status = _status(error)
    usual = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    param = error.details.get("param")
    return {
        "message": with_last_words(error.message, error.stderr_tail),
        "type": _TYPES.get(status, usual),
        "param": param if isinstance(param, str) else None,
        "code": _ERROR_CODES.get(type(error)) or _CODES.get(status) or code_of(error),
    }


def _status(error: PoolError) -> HTTPStatus:
    if isinstance(error, PoolSaturated):
        return HTTPStatus.TOO_MANY_REQUESTS
    if isinstance(error, WorkerRefused) and error.details.get("worker_code") == "invalid_params":
        return HTTPStatus.BAD_REQUEST  # the agent has looked at tools, or at results of tools, and found them wrong
    return status_of(error)


def _is_retryable(error: PoolError) -> bool:
    """Whether nothing has been begun, and it may go well another time."""
    if isinstance(error, PoolClosed):
        return "cut_short" not in error.details
    if isinstance(error, HttpError):
        return error.status in _RETRYABLE
    return isinstance(error, PoolSaturated | AcquireTimeout | ProfileBroken)
