"""JSON-RPC 2.0 with an editor, one object a line: what a line is, and how lines to the editor are written. Pure."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from wire.framing import DECODE_ERRORS, decode_block, escape_line_separators

MAX_LINE_BYTES = 64 * 1024 * 1024
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, FAILED = -32700, -32600, -32601, -32602, -32603
NOT_FOUND = -32002

P = TypeVar("P")
_NULL = msgspec.Raw(b"null")
_MOST_ID = 1_000
_encode = msgspec.json.Encoder().encode


class EditorError(Exception):
    """What a request of the editor is answered with instead of a result."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class EditorRequest(NamedTuple):
    """A request; ``id`` is the JSON that its answer repeats."""

    id: msgspec.Raw
    method: str
    params: msgspec.Raw


class EditorNotification(NamedTuple):
    """A message that has no answer."""

    method: str
    params: msgspec.Raw


class EditorAnswer(NamedTuple):
    """The answer to a request of ours; ``result`` None: it failed, or the request was not understood."""

    id: msgspec.Raw
    result: msgspec.Raw | None


class BadLine(NamedTuple):
    """A line that is none of these, and its answer."""

    id: msgspec.Raw
    error: EditorError


EditorLine: TypeAlias = EditorRequest | EditorNotification | EditorAnswer | BadLine


class _AnyMessage(msgspec.Struct):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = _NULL
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_messages = msgspec.json.Decoder(_AnyMessage)
_ids: msgspec.json.Decoder[str | int | None] = msgspec.json.Decoder(str | int | None)
_methods = msgspec.json.Decoder(str)


class EditorFramer:
    """Cuts what the editor writes into lines; of one over ``limit`` bytes nothing is kept, up to its LF."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pending = BytesIO()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that ``data`` completes, without their ends; None stands for one that was too long."""
        lines: list[bytes | None] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            lines.append(self.rest())
            start = end + 1
        self._keep(data[start:])
        return lines

    def rest(self) -> bytes | None:
        """What came after the last LF, as a line."""
        line = None if self._is_skipping else self._pending.getvalue()
        self._pending, self._is_skipping = BytesIO(), False
        return line

    def _keep(self, piece: bytes) -> None:
        if not self._is_skipping and self._pending.tell() + len(piece) > self._limit:
            self._pending, self._is_skipping = BytesIO(), True
        if not self._is_skipping:
            self._pending.write(piece)


def read_line(line: bytes | None) -> EditorLine:  # noqa: PLR0911  # one for each kind of line
    """What a line is; None: one that was too long."""
    if line is None:
        return _bad(INVALID_REQUEST, f"a message may have {MAX_LINE_BYTES:,} bytes")
    found = decode_block(line + b"\n", _messages).messages
    if not found:
        return _not_a_message(line)
    message = found[0]
    if isinstance(message.id, msgspec.UnsetType):
        return _read_notification(message)
    if not _is_id(message.id):
        return _bad(INVALID_REQUEST, "id: expected a string, a whole number or null")
    if isinstance(message.method, msgspec.Raw):
        method = _read_method(message.method)
        return method if isinstance(method, BadLine) else EditorRequest(message.id, method, message.params)
    if isinstance(message.result, msgspec.Raw):
        return EditorAnswer(message.id, message.result)
    if isinstance(message.error, msgspec.Raw):
        return EditorAnswer(message.id, None)
    return BadLine(message.id, EditorError(INVALID_REQUEST, "method: it is missing"))


def _read_notification(message: _AnyMessage) -> EditorLine:
    if isinstance(message.method, msgspec.UnsetType):
        return _bad(INVALID_REQUEST, "method: it is missing")
    method = _read_method(message.method)
    return method if isinstance(method, BadLine) else EditorNotification(method, message.params)


def _read_method(raw: msgspec.Raw) -> str | BadLine:
    try:
        return _methods.decode(raw)
    except DECODE_ERRORS:
        return _bad(INVALID_REQUEST, "method: expected a string")


def _is_id(raw: msgspec.Raw) -> bool:
    try:
        _ids.decode(raw)
    except DECODE_ERRORS:
        return False
    return len(bytes(raw)) <= _MOST_ID


def decode_id(raw: msgspec.Raw) -> str | int | None:
    """The id that the JSON means, to be compared; None for what can be none."""
    return _ids.decode(raw) if _is_id(raw) else None


def _not_a_message(line: bytes) -> BadLine:
    try:
        msgspec.json.decode(line)
    except DECODE_ERRORS as exc:
        return _bad(PARSE_ERROR, f"not JSON: {exc}")
    return _bad(INVALID_REQUEST, "a message is one JSON object; batches are not taken")


def _bad(code: int, message: str) -> BadLine:
    return BadLine(_NULL, EditorError(code, message))


def read_params(kind: type[P], params: msgspec.Raw) -> P:
    """The parameters of a request. Raises EditorError that names the member which is wrong."""
    raw = bytes(params)
    try:
        return msgspec.json.decode(b"{}" if raw == b"null" else raw, type=kind)
    except DECODE_ERRORS as exc:
        raise EditorError(INVALID_PARAMS, f"params: {exc}") from exc


# --- to the editor ----------------------------------------------------------------------------------------------------


def encode_answer(identity: msgspec.Raw, result: Any) -> bytes:
    """The answer to a request that went well."""
    return _as_line({"jsonrpc": "2.0", "id": identity, "result": result})


def encode_refusal(identity: msgspec.Raw, error: EditorError) -> bytes:
    """The answer to one that did not."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return _as_line({"jsonrpc": "2.0", "id": identity, "error": body})


def encode_call(number: int, method: str, params: Any) -> bytes:
    """A request of ours."""
    return _as_line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def encode_notification(method: str, params: Any) -> bytes:
    """A message of ours that has no answer."""
    return _as_line({"jsonrpc": "2.0", "method": method, "params": params})


def _as_line(message: Any) -> bytes:
    return seal_line(_encode(message))


def seal_line(encoded: bytes) -> bytes:
    """JSON text without line breaks as a line, to every reader."""
    return (encoded if encoded.isascii() else escape_line_separators(encoded)) + b"\n"
