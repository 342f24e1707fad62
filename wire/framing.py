"""Sans-IO framing of JSON Lines: bytes in, blocks of complete lines out, and the hot path that decodes a block at once.

LF is the only record separator; a trailing CR is stripped; U+2028 and its kin stay inside a line.
"""

from typing import Generic, NamedTuple, TypeVar

import msgspec

from errors import ProtocolViolation

__all__ = ["CONTAMINATION_SAMPLE_BYTES", "DEFAULT_MAX_LINE_BYTES", "DecodedBlock", "LineFramer", "decode_block"]

DEFAULT_MAX_LINE_BYTES = 64 * 1024 * 1024
CONTAMINATION_SAMPLE_BYTES = 512

T = TypeVar("T")


class LineFramer:
    """Cuts a byte stream into blocks of complete lines; linear in the stream, whatever the line lengths.

    A line over ``max_line_bytes`` (without its LF) raises ProtocolViolation: nothing is ever cut silently.
    """

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the unfinished last line."""
        return self._pending_bytes

    def feed_block(self, data: bytes) -> bytes:
        """Take a piece of the stream; return all lines it completed as one block ending in LF, or ``b""``."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._keep(data)
            return b""
        head = data if end == len(data) else data[:end]
        if self._parts:
            self._parts.append(head)
            block = b"".join(self._parts)
            self._parts.clear()
            self._pending_bytes = 0
        else:
            block = head
        if len(block) > self._max_line_bytes:
            self._check_lines(block)
        if end != len(data):
            self._keep(data[end:])
        return block

    def feed(self, data: bytes) -> list[bytes]:
        """The same, as a list of lines without their ends."""
        block = self.feed_block(data)
        if not block:
            return []
        return [line.removesuffix(b"\r") for line in block[:-1].split(b"\n")]

    def rest(self) -> bytes:
        """What came after the last LF; the stream has ended and this line will never be whole."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self._pending_bytes = 0
        return rest

    def _keep(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        if self._pending_bytes > self._max_line_bytes:
            raise self._too_long(self._pending_bytes)
        self._parts.append(data)

    def _check_lines(self, block: bytes) -> None:
        start = 0
        while start < len(block):
            end = block.index(b"\n", start)
            if end - start > self._max_line_bytes:
                raise self._too_long(end - start)
            start = end + 1

    def _too_long(self, size: int) -> ProtocolViolation:
        return ProtocolViolation(
            f"a line of at least {size} bytes is over the limit of {self._max_line_bytes}; "
            "raise max_line_bytes if it is legitimate"
        )


class DecodedBlock(NamedTuple, Generic[T]):
    """The outcome of ``decode_block``: messages in order, samples of lines that were none, and how their runs lie."""

    messages: list[T]
    contaminated: list[bytes]
    contaminated_run: int
    clean_start: bool


def decode_block(block: bytes, decoder: msgspec.json.Decoder[T]) -> DecodedBlock[T]:
    """Decode a block of complete lines (as ``LineFramer.feed_block`` returns it), one JSON object a line.

    The hot path is one ``decode_lines`` call. That call ignores where lines end and passes over bad UTF-8 in what it
    leaves raw, so its result counts only if the block is UTF-8, every LF lies between two top-level objects and there
    are as many messages as lines; any other block is looked at line by line.
    """
    if (block.isascii() or _is_utf8(block)) and block.startswith(b"{") and block.endswith(b"}\n"):
        lines = block.count(b"}\n{") + 1
        if lines == block.count(b"\n"):
            try:
                messages = decoder.decode_lines(block)
            except msgspec.MsgspecError:
                pass  # some line is bad: the slow path below finds out which
            else:
                if len(messages) == lines:
                    return DecodedBlock(messages, [], contaminated_run=0, clean_start=True)
    return _decode_line_by_line(block, decoder)


def _decode_line_by_line(block: bytes, decoder: msgspec.json.Decoder[T]) -> DecodedBlock[T]:
    messages: list[T] = []
    contaminated: list[bytes] = []
    run = 0
    clean_start: bool | None = None
    for line in block[:-1].split(b"\n"):
        stripped = line.removesuffix(b"\r")
        if not stripped.strip():
            continue
        try:
            stripped.decode()
            messages.append(decoder.decode(stripped))
            run = 0
        except (UnicodeDecodeError, msgspec.MsgspecError):
            contaminated.append(stripped[:CONTAMINATION_SAMPLE_BYTES])
            run += 1
        if clean_start is None:
            clean_start = run == 0
    return DecodedBlock(messages, contaminated, contaminated_run=run, clean_start=clean_start is not False)


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True
