"""Frames, errors and times of the protocol as JSON, and the limits of one WebSocket. Pure."""

import math
from typing import Any, Literal

import msgspec

from doors.http.errors import TooManyRequests, code_of
from errors import AcquireTimeout, Conflict, PoolClosed, PoolError, PoolSaturated, RequestTimeout, UsageError
from wire.framing import DECODE_ERRORS
from wire.units import ByteCount, Seconds

_encode = msgspec.json.Encoder().encode
_NO_PARAMS = msgspec.Raw(b"{}")


class RequestFrame(msgspec.Struct, frozen=True):
    """A request. ``params`` are undecoded."""

    type: Literal["req"]
    id: str
    method: str
    params: msgspec.Raw = _NO_PARAMS


class _FrameId(msgspec.Struct):
    id: Any = None


class MalformedFrame(UsageError):
    """It is no request; ``request_id`` is what it may be answered under."""

    def __init__(self, message: str, request_id: str | None) -> None:
        super().__init__(message)
        self.request_id = request_id


_MOST_ID = 128
_MOST_METHOD = 64
_read = msgspec.json.Decoder(RequestFrame)
_read_id = msgspec.json.Decoder(_FrameId)


def read_frame(text: str) -> RequestFrame:
    """A frame of the peer. Raises MalformedFrame."""
    try:
        frame = _read.decode(text)
    except DECODE_ERRORS as exc:
        raise MalformedFrame(f"this is no request: {exc}", _id_in(text)) from exc
    if not 0 < len(frame.id) <= _MOST_ID:
        raise MalformedFrame(f"the id of a request has 1 to {_MOST_ID} characters", None)
    if len(frame.method) > _MOST_METHOD:
        raise MalformedFrame(f"the name of a method has at most {_MOST_METHOD} characters", frame.id)
    return frame


def _id_in(text: str) -> str | None:
    try:
        name = _read_id.decode(text).id
    except DECODE_ERRORS:
        return None
    return name if isinstance(name, str) and 0 < len(name) <= _MOST_ID else None


def encode_answer(request_id: str, payload: Any) -> bytes:
    """A request has been carried out, or accepted. Raises TypeError for what JSON cannot hold."""
    return b'{"type":"res","id":%b,"ok":true,"payload":%b}' % (_encode(request_id), _encode(payload))


def encode_error(request_id: str, error: dict[str, Any]) -> bytes:
    """A request has failed; ``error`` as ``error_shape`` makes it."""
    return b'{"type":"res","id":%b,"ok":false,"error":%b}' % (_encode(request_id), _encode(error))


def encode_event(name: str, payload: bytes, seq: int | None = None) -> bytes:
    """An event with its payload, JSON already. ``seq`` counts the connection's events, those it lost too."""
    tail = b"}" if seq is None else b',"seq":%d}' % seq
    return b'{"type":"event","event":"%b","payload":%b%b' % (name.encode(), payload, tail)


_RETRYABLE = (PoolSaturated, PoolClosed, AcquireTimeout, TooManyRequests)


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
    is_wrong = isinstance(error, UsageError | Conflict) and not isinstance(error, TooManyRequests)
    return "INVALID_REQUEST" if is_wrong else "UNAVAILABLE"


def _details(error: PoolError) -> dict[str, Any]:
    details = {**error.details, "code": code_of(error)}
    try:
        msgspec.json.encode(details)
    except (TypeError, ValueError):
        return {"code": code_of(error)}  # details that JSON cannot hold are left out
    return details


def milliseconds(seconds: float | None) -> int | None:
    """Unix time as the protocol has it."""
    return None if seconds is None else int(seconds * 1000)


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is not set with the rest of the port (``[http]``)."""

    connect_timeout: Seconds = Seconds(15)
    """How long a peer may take until its ``connect``."""
    first_frame_bytes: ByteCount = ByteCount(64 * 1024)
    """The largest ``connect``."""
    buffered_bytes: ByteCount = ByteCount(1024 * 1024)
    """What may wait for one peer; then events that may be dropped are, and any other ends the connection."""
    output_bytes: ByteCount = ByteCount(256 * 1024 * 1024)
    """What may wait for all peers, beyond the first 256 KiB of each."""
    max_requests: int = 256
    """Requests of one connection that have no last answer yet."""
    max_refused: int = 100
    """Frames in a row that are no request; one more ends the connection."""
    tick: Seconds = Seconds(30)
    """A sign of life is sent so often."""
