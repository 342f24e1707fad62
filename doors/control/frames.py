"""The server's lines of the control socket: requests decoded strictly, answers and pushes encoded once."""

import re
from typing import Annotated, Any

import msgspec

from errors import PoolError, UsageError
from wire.framing import DECODE_ERRORS, escape_line_separators
from wire.messages import EMPTY, ErrorBody

RequestId = Annotated[str, msgspec.Meta(max_length=128)] | Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Echoed in every answer and event of its request, therefore short."""


class ControlRequest(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A request as it came in; ``params`` is undecoded JSON. A parameter beside ``params`` is refused, not ignored."""

    id: RequestId
    method: Annotated[str, msgspec.Meta(max_length=128)]
    params: msgspec.Raw = EMPTY


class _RequestIdOnly(msgspec.Struct):
    """The least that a bad frame must have to be answered under its own id."""

    id: RequestId


class _ResultFrame(msgspec.Struct):
    id: str | int
    result: Any


class _ErrorFrame(msgspec.Struct):
    id: str | int | None
    error: ErrorBody


class _PushFrame(msgspec.Struct):
    event: str
    data: Any


_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half of a character, as a text has it that was cut in the middle of one; two of them may be a whole one."""


class InvalidFrame(UsageError):
    """A line that is no request; ``request_id`` is its id where it has a usable one."""

    def __init__(self, message: str, request_id: str | int | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


_requests = msgspec.json.Decoder(ControlRequest)
_request_ids = msgspec.json.Decoder(_RequestIdOnly)
_encoder = msgspec.json.Encoder()


def decode_request(line: bytes) -> ControlRequest:
    """Read one line. Raises InvalidFrame, whose text says what a request looks like, for anything else."""
    try:
        request = _requests.decode(line)
        if not line.isascii():
            bytes(request.params).decode()  # what stays raw has not been looked at yet
    except DECODE_ERRORS as exc:
        raise InvalidFrame(
            f'a request is one JSON object a line, {{"id", "method", "params"}}: {exc}', _recover_id(line)
        ) from exc
    return request


def _recover_id(line: bytes) -> str | int | None:
    """The id, also where half a character in the text is all that is wrong; None = unknown."""
    try:
        request_id = _request_ids.decode(_LONE_SURROGATE.sub(rb"\\ufffd", line)).id
    except DECODE_ERRORS:
        return None
    return None if isinstance(request_id, str) and "\ufffd" in request_id else request_id


def encode_result(request_id: str | int, result: Any) -> bytes:
    """The answer to a request that went well. Raises TypeError for a result that JSON cannot hold."""
    return _as_line(_ResultFrame(request_id, result))


def encode_error(request_id: str | int | None, error: PoolError) -> bytes:
    """The answer to a request that failed; details that JSON cannot hold are left out."""
    try:
        return _as_line(_ErrorFrame(request_id, ErrorBody(error.code, error.message, error.details)))
    except (TypeError, ValueError):
        return _as_line(_ErrorFrame(request_id, ErrorBody(error.code, error.message)))


def encode_push(event: str, data: Any) -> bytes:
    """``{"event", "data"}``; ``data`` is anything that encodes to a JSON object. Raises TypeError for what does not."""
    return _as_line(_PushFrame(event, data))


def encode_raw_push(event: str, data: bytes) -> bytes:
    """The same with ``data`` as JSON text of one line already, which is copied once and not looked at."""
    return b"".join((b'{"event":', _encoder.encode(event), b',"data":', data, b"}\n"))


def _as_line(message: Any) -> bytes:
    """As JSON text of one line, to every reader, whatever ``msgspec.Raw`` it holds."""
    encoded = _encoder.encode(message)
    if b"\n" in encoded or b"\r" in encoded:
        encoded = encoded.translate(None, b"\r\n")  # JSON has them between tokens alone
    if not encoded.isascii():
        encoded = escape_line_separators(encoded)
    return encoded + b"\n"
