"""``pool attach`` without I/O but stderr: a front end's lines to requests, messages of the socket to lines."""

import os
import select
from typing import NamedTuple

import msgspec

from doors.control.client_socket import decode_with, encode_request
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, ErrorBody, Message
from wire.terminal import clean_stream

MOST_LINE_BYTES = 8 * 1024 * 1024 - 4096
"""The largest request of the control socket, less what surrounds the line."""
_SHOWN_INVALID_BYTES = 1_000
_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEPT_MEMBERS = ("id", "type", "method")
_MOST_MEMBER = 1_000


class _LinesData(msgspec.Struct):
    lines: list[msgspec.Raw] = []
    taken: int = 0


class _StderrData(msgspec.Struct):
    words: str = ""


class AttachEnded(msgspec.Struct, frozen=True):
    """Why the attachment ended; code ``left``: the front end asked for it."""

    code: str
    message: str = ""


class AttachMessage(NamedTuple):
    """What a message of the socket means: lines for the front end, an answer, stderr of the agent, or the end.

    ``acknowledged``: how many lines of the front end were handed on so far; None where the message does not say.
    """

    lines: bytes = b""
    acknowledged: int | None = None
    result: msgspec.Raw = EMPTY
    error: ErrorBody | None = None
    ended: AttachEnded | None = None
    stderr_text: str | None = None


_lines_data = msgspec.json.Decoder(_LinesData)
_stderr_data = msgspec.json.Decoder(_StderrData)
_ended = msgspec.json.Decoder(AttachEnded)


def encode_send(number: int, attachment: str, line: bytes) -> bytes:
    """A line of the front end: as the JSON object that it is, else as text."""
    try:
        line.decode()  # what stays raw in the socket's frame must be text
        command = _objects.decode(line)
    except DECODE_ERRORS:
        return _encode_text(number, attachment, line)
    if len(line) > MOST_LINE_BYTES:
        return _encode_oversized(number, attachment, command, len(line))
    return b'{"id":"%d","method":"attach.send","params":{"attachment":"%b","line":%b}}\n' % (
        number,
        attachment.encode(),
        line,
    )


def _encode_text(number: int, attachment: str, line: bytes) -> bytes:
    """Its beginning, which the answer may show; all of it where only half a character is wrong."""
    if rb"\ud" in line or rb"\uD" in line:
        frame = encode_request(
            str(number), "attach.send", {"attachment": attachment, "text": line.decode(errors="replace")}
        )
        if len(frame) <= MOST_LINE_BYTES:
            return frame
    text = line[:_SHOWN_INVALID_BYTES].decode(errors="replace")
    return encode_request(str(number), "attach.send", {"attachment": attachment, "text": text})


def _encode_oversized(number: int, attachment: str, command: dict[str, msgspec.Raw], size: int) -> bytes:
    """The members of an oversized line that its answer needs."""
    refusal = f"the request has {size:,} bytes, and one that is passed on may have {MOST_LINE_BYTES:,}"
    kept = {
        name: command[name] for name in _KEPT_MEMBERS if name in command and len(bytes(command[name])) <= _MOST_MEMBER
    }
    return encode_request(str(number), "attach.send", {"attachment": attachment, "line": kept, "refusal": refusal})


def read_message(message: Message) -> AttachMessage:
    """What a message of the socket means. Raises ProtocolViolation."""
    if message.event == "attach":
        data = decode_with(_lines_data, message.data)
        return AttachMessage(b"".join([_as_line(bytes(each)) for each in data.lines]), data.taken)
    if message.event == "attach_words":
        return AttachMessage(stderr_text=decode_with(_stderr_data, message.data).words)
    if message.event == "attach_ended":
        return AttachMessage(ended=decode_with(_ended, message.data))
    return AttachMessage(result=message.result, error=message.error)


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
