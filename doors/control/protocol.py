"""The client's side of the control socket's protocol, without I/O: requests to lines, received bytes to messages."""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from errors import ProtocolViolation, UsageError
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import Message, RequestMessage

T = TypeVar("T")
_messages = msgspec.json.Decoder(Message)


def encode_request(request_id: str, method: str, params: Any) -> bytes:
    """A request as a whole line. Raises UsageError for parameters that are not UTF-8 text."""
    try:
        return msgspec.json.encode(RequestMessage(request_id, method, params)) + b"\n"
    except UnicodeEncodeError as exc:  # bytes of a command line that are no text
        raise UsageError(f"the request is not UTF-8 text: {exc}") from exc


def decode_with(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Decode what a supervisor sent. Raises ProtocolViolation for what no supervisor of this version sends."""
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as exc:
        raise ProtocolViolation(f"what answers on the socket is no supervisor of this version: {exc}") from exc


class MessageReader:
    """Reads the messages of one connection."""

    def __init__(self) -> None:
        self._framer = LineFramer()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes. Raises ProtocolViolation."""
        for line in self._framer.feed(data):
            yield decode_with(_messages, line)
