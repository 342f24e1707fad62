"""What goes wrong, as the protocol says it: ``{code, message, details?, retryable?, retryAfterMs?}``. Pure."""

import math
from typing import Any

import msgspec

from doors.http.refusals import TooMany, code_of
from errors import AcquireTimeout, Conflict, PoolClosed, PoolError, PoolSaturated, RequestTimeout, UsageError

__all__ = ["error_shape"]

_RETRYABLE = (PoolSaturated, PoolClosed, AcquireTimeout, TooMany)


def error_shape(error: PoolError) -> dict[str, Any]:
    """``code`` is one of the protocol's few; our own stable one is ``details.code``, beside what else is known."""
    shape: dict[str, Any] = {"code": _code(error), "message": error.message, "details": _details(error)}
    if isinstance(error, _RETRYABLE):
        shape["retryable"] = True
    if error.retry_after is not None:
        shape["retryAfterMs"] = math.ceil(error.retry_after * 1000)
    return shape


def _code(error: PoolError) -> str:
    if isinstance(error, RequestTimeout | AcquireTimeout):
        return "AGENT_TIMEOUT"
    is_wrong = isinstance(error, UsageError | Conflict) and not isinstance(error, TooMany)
    return "INVALID_REQUEST" if is_wrong else "UNAVAILABLE"


def _details(error: PoolError) -> dict[str, Any]:
    details = {**error.details, "code": code_of(error)}
    try:
        msgspec.json.encode(details)
    except (TypeError, ValueError):
        return {"code": code_of(error)}  # details that JSON cannot hold are left out
    return details
