"""Sans-IO framing of JSON Lines: bytes in, blocks of complete lines out, and the hot path that decodes a block at once.

LF is the only record separator; a trailing CR is stripped; U+2028 and its kin stay inside a line.
"""

import codecs
import re
from collections.abc import Callable
from io import BytesIO
from typing import Generic, NamedTuple, TypeVar

import msgspec

from errors import ProtocolViolation

DEFAULT_MAX_LINE_BYTES = 64 * 1024 * 1024
_UTF8_STEP = 256 * 1024

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a peer's JSON may raise: bad syntax or shape, bad UTF-8, nesting deeper than the interpreter's stack.

Catch these when decoding a raw ``data`` or ``result``: numbers out of range and deep nesting show only then.
"""

_EMPTY_TEXT = re.compile(r"Expected `str` of length >= 1 - at `\$\.(\w+)`")


def decode_problem(error: Exception) -> str:
    """One of the ``DECODE_ERRORS`` in words: of a text that may not be empty, that it is."""
    empty = _EMPTY_TEXT.fullmatch(str(error))
    return f"{empty[1]} is empty" if empty else str(error)


T = TypeVar("T")


class LineFramer:
    """Cuts a byte stream into blocks of complete lines; linear in the stream, whatever the line and chunk lengths.

    A line over ``max_line_bytes`` (without its LF) ends the stream: the lines before it are still handed out, then
    ``violation`` is set and every further call raises it. Nothing is ever cut silently.
    """

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pending = BytesIO()
        self.pending_bytes = 0
        """Bytes of the unfinished last line."""
        self.violation: ProtocolViolation | None = None

    def feed_block(self, data: bytes) -> bytes:
        """Take a piece of the stream; return all lines it completed as one block ending in LF, or ``b""``.

        Raises ProtocolViolation for a line over the limit, as soon as no complete line stands before it.
        """
        if (violation := self.violation) is not None:
            raise violation
        if not self.pending_bytes and len(data) <= self._max_line_bytes and data.endswith(b"\n"):
            return data  # most pieces are whole lines
        end = data.rfind(b"\n") + 1
        block = self._completed_block(data, end) if end else b""
        if end != len(data):
            self._buffer(memoryview(data)[end:])
        if self.violation is not None and not block:
            raise self.violation
        return block

    def feed(self, data: bytes) -> list[bytes]:
        """The same, as a list of lines without their ends."""
        block = self.feed_block(data)
        if not block:
            return []
        return [line.removesuffix(b"\r") for line in block[:-1].split(b"\n")]

    def rest(self) -> bytes:
        """What came after the last LF; the stream has ended and this line will never be whole."""
        return self._pop_pending()

    def _completed_block(self, data: bytes, end: int) -> bytes:
        if self.pending_bytes:
            self._pending.write(memoryview(data)[:end])
            block = self._pop_pending()
        else:
            block = data[:end]
        if len(block) > self._max_line_bytes:
            return self._cut_at_long_line(block)
        return block

    def _buffer(self, data: memoryview) -> None:
        size = self.pending_bytes + len(data)
        if self.violation is None and size > self._max_line_bytes:
            self._set_violation(size)
        if self.violation is not None:
            return
        self._pending.write(data)
        self.pending_bytes = size

    def _pop_pending(self) -> bytes:
        # BytesIO grows in place and gives its buffer away uncopied: one copy per byte, also for one-byte chunks
        pending = self._pending.getvalue()
        if pending:
            self._pending = BytesIO()
            self.pending_bytes = 0
        return pending

    def _cut_at_long_line(self, block: bytes) -> bytes:
        start = 0
        while start < len(block):
            end = block.index(b"\n", start)
            if end - start > self._max_line_bytes:
                self._set_violation(end - start)
                return block[:start]
            start = end + 1
        return block

    def _set_violation(self, size: int) -> None:
        self._pop_pending()
        self.violation = ProtocolViolation(
            f"a line of at least {size} bytes is over the limit of {self._max_line_bytes}; "
            "raise max_line_bytes if it is legitimate"
        )


class DecodedBlock(NamedTuple, Generic[T]):
    """The outcome of decoding a block: messages in order, the lines that were none, and how their runs lie.

    ``trailing_run``, ``leading_run`` and ``longest_run`` count such lines in a row at the end, at the start and
    anywhere; blank lines count as nothing.
    """

    messages: list[T]
    invalid_lines: list[bytes]
    trailing_run: int = 0
    leading_run: int = 0
    longest_run: int = 0


def decode_block(block: bytes, decoder: msgspec.json.Decoder[T]) -> DecodedBlock[T]:
    """Decode a block of complete lines (as ``LineFramer.feed_block`` returns it), one JSON object a line.

    The hot path is one ``decode_lines`` call. That call ignores where lines end and passes over bad UTF-8 in what it
    leaves raw, so its result counts only if the block is UTF-8, every LF lies between two top-level objects and there
    are as many messages as lines; any other block is looked at line by line.
    """
    if block.startswith(b"{") and block.endswith(b"}\n") and (block.isascii() or _is_utf8(block)):
        lines = block.count(b"}\n{") + 1
        if lines == block.count(b"\n"):
            try:
                messages = decoder.decode_lines(block)
            except DECODE_ERRORS:
                pass  # some line is bad: the slow path below finds out which
            else:
                if len(messages) == lines:
                    return DecodedBlock(messages, [])
    return decode_each_line(block, decoder)


def decode_each_line(
    block: bytes, decoder: msgspec.json.Decoder[T], accept: Callable[[T], bool] | None = None
) -> DecodedBlock[T]:
    """The same line by line, which separates bad lines from good ones; a message that ``accept`` refuses is bad."""
    messages: list[T] = []
    invalid: list[bytes] = []
    runs = [0]  # lengths of the runs of bad lines between the messages, empty runs included
    for ended in block.split(b"\n"):
        line = ended.removesuffix(b"\r")
        if not line or line.isspace():
            continue
        try:
            message = _decode_line(line, decoder)
        except DECODE_ERRORS:
            message = None
        if message is None or (accept is not None and not accept(message)):
            invalid.append(line)
            runs[-1] += 1
        else:
            messages.append(message)
            runs.append(0)
    return DecodedBlock(messages, invalid, runs[-1], runs[0], max(runs))


def _decode_line(line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    if not line.isascii():
        _check_utf8(line)
    try:
        return decoder.decode(line)
    except msgspec.DecodeError:
        mended = _replace_lone_surrogates(line)
        if mended == line:
            raise
        return decoder.decode(mended)


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair stays
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)


def _replace_lone_surrogates(line: bytes) -> bytes:
    """Put U+FFFD for half surrogate pairs: JavaScript writes them when it cuts a text inside an emoji."""
    if rb"\ud" not in line and rb"\uD" not in line:
        return line
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], line)


_LINE_SEPARATORS = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85")


def escape_line_separators(data: bytes) -> bytes:
    """JSON with the characters escaped that end a line to some readers: Node's ``readline``, ``str.splitlines``."""
    return _LINE_SEPARATORS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def _check_utf8(data: bytes) -> None:
    # in steps: the text of a whole 16 MiB line can take four times its bytes
    view, start = memoryview(data), 0
    while start < len(view):
        end = start + _UTF8_STEP
        start += codecs.utf_8_decode(view[start:end], "strict", end >= len(view))[1]


def _is_utf8(block: bytes) -> bool:
    try:
        _check_utf8(block)
    except UnicodeDecodeError:
        return False
    return True
