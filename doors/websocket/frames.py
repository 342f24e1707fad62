"""The frames of the protocol as text: requests read, answers and events written. Pure."""

from typing import Any, Literal

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["BadFrame", "Incoming", "encode_answer", "encode_event", "encode_refusal", "read_frame"]

_encode = msgspec.json.Encoder().encode
_NO_PARAMS = msgspec.Raw(b"{}")


class Incoming(msgspec.Struct, frozen=True):
    """A request. ``params`` are undecoded."""

    type: Literal["req"]
    id: str
    method: str
    params: msgspec.Raw = _NO_PARAMS


class _Named(msgspec.Struct):
    id: Any = None


class BadFrame(UsageError):
    """It is no request; ``request_id`` is what it may be answered under."""

    def __init__(self, message: str, request_id: str | None) -> None:
        super().__init__(message)
        self.request_id = request_id


_MOST_ID = 128
_MOST_METHOD = 64
_read = msgspec.json.Decoder(Incoming)
_read_named = msgspec.json.Decoder(_Named)


def read_frame(text: str) -> Incoming:
    """A frame of the peer. Raises BadFrame."""
    try:
        frame = _read.decode(text)
    except DECODE_ERRORS as exc:
        raise BadFrame(f"this is no request: {exc}", _id_in(text)) from exc
    if not 0 < len(frame.id) <= _MOST_ID:
        raise BadFrame(f"the id of a request has 1 to {_MOST_ID} characters", None)
    if len(frame.method) > _MOST_METHOD:
        raise BadFrame(f"the name of a method has at most {_MOST_METHOD} characters", frame.id)
    return frame


def _id_in(text: str) -> str | None:
    try:
        name = _read_named.decode(text).id
    except DECODE_ERRORS:
        return None
    return name if isinstance(name, str) and 0 < len(name) <= _MOST_ID else None


def encode_answer(request_id: str, payload: Any) -> bytes:
    """A request has been carried out, or accepted. Raises TypeError for what JSON cannot hold."""
    return b'{"type":"res","id":%b,"ok":true,"payload":%b}' % (_encode(request_id), _encode(payload))


def encode_refusal(request_id: str, error: dict[str, Any]) -> bytes:
    """A request has failed; ``error`` as ``refusals.error_shape`` makes it."""
    return b'{"type":"res","id":%b,"ok":false,"error":%b}' % (_encode(request_id), _encode(error))


def encode_event(name: str, payload: bytes, seq: int | None = None) -> bytes:
    """An event with its payload, JSON already. ``seq`` counts the connection's events, those it lost too."""
    tail = b"}" if seq is None else b',"seq":%d}' % seq
    return b'{"type":"event","event":"%b","payload":%b%b' % (name.encode(), payload, tail)
