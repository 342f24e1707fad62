"""Line connection and stderr of pool attach.

From the lines of a front end to requests of the control socket, and from its pushes to lines. Pure.

The agent's stderr on this process's own, without waiting: lines that are not read are left out, with a note.
"""

import os
import select
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, ErrorBody
from wire.terminal import clean_stream

MOST_LINE_BYTES = 8 * 1024 * 1024 - 4096
"""What the control socket takes as one request, but for what is put around the line."""
_SHOWN_INVALID_BYTES = 1_000
_encode = msgspec.json.Encoder().encode
_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEPT_MEMBERS = ("id", "type", "method")
_MOST_MEMBER = 1_000


class _SocketLine(msgspec.Struct):
    """What the socket sends: an answer (``id``), or a push (``event``)."""

    id: int | None = None
    event: str | None = None
    data: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    error: ErrorBody | None = None


class _LinesData(msgspec.Struct):
    lines: list[msgspec.Raw] = []
    taken: int = 0


class _StderrData(msgspec.Struct):
    words: str = ""


class AttachEnded(msgspec.Struct, frozen=True):
    """Why it is over; code ``left``: the front end itself has asked for it."""

    code: str
    message: str = ""


class AttachMessage(NamedTuple):
    """What one line of the socket means: lines for the front end, an answer to a request of ours, the end.

    ``words``: written by the agent to its stderr.
    ``taken``: how many lines of the front end were handed on so far; None where it says nothing of them.
    """

    lines: bytes = b""
    acknowledged: int | None = None
    request_id: int | None = None
    result: msgspec.Raw = EMPTY
    error: ErrorBody | None = None
    ended: AttachEnded | None = None
    stderr_text: str | None = None


_socket_lines = msgspec.json.Decoder(_SocketLine)
_lines_data = msgspec.json.Decoder(_LinesData)
_stderr_data = msgspec.json.Decoder(_StderrData)
_ended = msgspec.json.Decoder(AttachEnded)


def encode_request(number: int, method: str, params: object) -> bytes:
    """A request as a whole line."""
    return _encode({"id": number, "method": method, "params": params}) + b"\n"


def encode_open(number: int, params: Mapping[str, object]) -> bytes:
    """The first request."""
    return encode_request(number, "attach.open", params)


def encode_send(number: int, attachment: str, line: bytes) -> bytes:
    """A line of the front end: as the JSON object that it is, else as the text that it is instead."""
    try:
        line.decode()  # what stays raw in the socket's frame must be text
        command = _objects.decode(line)
    except DECODE_ERRORS:
        return _encode_text(number, attachment, line)
    if len(line) > MOST_LINE_BYTES:
        return _encode_oversized(number, attachment, command, len(line))
    return b'{"id":%d,"method":"attach.send","params":{"attachment":"%b","line":%b}}\n' % (
        number,
        attachment.encode(),
        line,
    )


def _encode_text(number: int, attachment: str, line: bytes) -> bytes:
    """The beginning of it, which its answer may show; all of it where only half a character is wrong with it."""
    if rb"\ud" in line or rb"\uD" in line:
        frame = encode_request(number, "attach.send", {"attachment": attachment, "text": line.decode(errors="replace")})
        if len(frame) <= MOST_LINE_BYTES:
            return frame
    text = line[:_SHOWN_INVALID_BYTES].decode(errors="replace")
    return encode_request(number, "attach.send", {"attachment": attachment, "text": text})


def _encode_oversized(number: int, attachment: str, command: dict[str, msgspec.Raw], size: int) -> bytes:
    """Of a line that is too large, as much as its answer needs."""
    refusal = f"the request has {size:,} bytes, and one that is passed on may have {MOST_LINE_BYTES:,}"
    kept = {
        name: command[name] for name in _KEPT_MEMBERS if name in command and len(bytes(command[name])) <= _MOST_MEMBER
    }
    return encode_request(number, "attach.send", {"attachment": attachment, "line": kept, "refusal": refusal})


def decode_message(line: bytes) -> AttachMessage:
    """Read a line of the socket. Raises DECODE_ERRORS for what no supervisor of this version says."""
    found = _socket_lines.decode(line)
    if found.event == "attach":
        told = _lines_data.decode(found.data)
        return AttachMessage(b"".join([_as_line(bytes(each)) for each in told.lines]), told.taken)
    if found.event == "attach_words":
        return AttachMessage(stderr_text=_stderr_data.decode(found.data).words)
    if found.event == "attach_ended":
        return AttachMessage(ended=_ended.decode(found.data))
    return AttachMessage(request_id=found.id, result=found.result, error=found.error)


def _as_line(raw: bytes) -> bytes:
    """A line that no strict decoder takes comes as a text."""
    return (msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw) + b"\n"


_MOST_WAITING = 256 * 1024
_OMITTED_NOTICE = b"[lines of the agent's stderr were left out: they were not read]\n"


class StderrWriter:
    """Writes to ``fd`` as much as it takes without blocking; at most 256 KiB and one piece more wait."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._waiting = b""
        self._has_omitted = self._is_closed = False

    @property
    def has_pending(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._waiting)

    def add(self, words: str) -> None:
        """Take whole lines, and write what can be written now."""
        if self._is_closed:
            return
        if len(self._waiting) > _MOST_WAITING:
            self._has_omitted = True
            return
        self._waiting += (_OMITTED_NOTICE if self._has_omitted else b"") + clean_stream(words).encode()
        self._has_omitted = False
        self.write()

    def write(self) -> None:
        """Write for as long as that does not wait: a pipe that is ready takes ``PIPE_BUF`` bytes at once."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        try:
            while self._waiting and poll.poll(0):
                self._waiting = self._waiting[os.write(self.fd, self._waiting[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return  # stdout is the same file, and does not wait either
        except OSError:  # its reader has left
            self._waiting, self._is_closed = b"", True
