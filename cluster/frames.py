"""The frames of a link between supervisor and node: bytes in, frames out. Pure.

A frame is a head ``!IBI`` (bytes of its payload, kind, channel) and the payload. Channel 0 is the node itself, any
other one a worker. Whatever breaks these rules ends the link: after a broken frame the next one cannot be found.
"""

import struct
from collections.abc import Generator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from errors import PoolError

CHUNK_BYTES = 64 * 1024
"""The most that one frame carries of a stream or a file."""
NODE_CHANNEL = 0
"""The channel of what concerns the node itself."""
MAX_HELLO_BYTES = 4 * 1024
"""The size of the only frame that is read of a peer that is not known yet."""

_HEAD = struct.Struct("!IBI")
_SMALL = 4 * 1024
_PIECE = CHUNK_BYTES + 256
_START = 8 * 1024 * 1024  # system prompts, arguments and environment
_FACTS = 256 * 1024


class LinkViolation(PoolError):
    """The other end of a link broke its protocol; the link is ended."""

    code = "link_violation"


class FrameKind(IntEnum):
    """What a frame is; ``cluster.messages`` has the contents of those that carry no plain bytes."""

    HELLO = 1
    WELCOME = 2
    PING = 3
    PONG = 4
    START = 5
    STARTED = 6
    FAILED = 7
    IN = 8
    OUT = 9
    ERR = 10
    CREDIT = 11
    STOP = 12
    EXIT = 13
    FACTS = 14
    FOLLOW = 15
    LOG = 16
    HAVE = 17
    HAS = 18
    PUT = 19
    BYE = 20
    FETCH = 21
    FILE = 22


Limits = Mapping[FrameKind, int]

FROM_NODE: Limits = MappingProxyType(
    {
        FrameKind.PING: _SMALL,
        FrameKind.STARTED: _SMALL,
        FrameKind.FAILED: 2 * CHUNK_BYTES,
        FrameKind.OUT: CHUNK_BYTES,
        FrameKind.ERR: CHUNK_BYTES,
        FrameKind.CREDIT: _SMALL,
        FrameKind.EXIT: _SMALL,
        FrameKind.FACTS: _FACTS,
        FrameKind.LOG: _PIECE,
        FrameKind.HAS: _SMALL,
        FrameKind.FILE: _PIECE,
        FrameKind.BYE: _SMALL,
    }
)
"""What a node may say once it is welcome, each with the largest payload in bytes."""

FROM_HOME: Limits = MappingProxyType(
    {
        FrameKind.WELCOME: _SMALL,
        FrameKind.PONG: _SMALL,
        FrameKind.START: _START,
        FrameKind.IN: CHUNK_BYTES,
        FrameKind.CREDIT: _SMALL,
        FrameKind.STOP: _SMALL,
        FrameKind.FOLLOW: 2 * _SMALL,
        FrameKind.HAVE: 2 * _SMALL,
        FrameKind.PUT: _PIECE,
        FrameKind.FETCH: 2 * _SMALL,
        FrameKind.BYE: _SMALL,
    }
)
"""What the supervisor may say."""

FROM_STRANGER: Limits = MappingProxyType({FrameKind.HELLO: MAX_HELLO_BYTES})
"""What a peer may say before it is welcome."""

MAX_SENT_BYTES: Limits = MappingProxyType({**FROM_STRANGER, **FROM_NODE, **FROM_HOME})
"""What the other end takes of each kind."""


class Frame(NamedTuple):
    """One frame."""

    kind: FrameKind
    channel: int
    payload: bytes


def encode_frame(kind: FrameKind, channel: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return _HEAD.pack(len(payload), kind, channel) + payload


class FrameDecoder:
    """Cuts a stream into frames. It holds at most one frame's bytes beside what it was fed last.

    ``accepts`` may be replaced between two frames; the next frame is judged by it.
    """

    def __init__(self, accepts: Limits) -> None:
        self.accepts = accepts
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Generator[Frame, None, None]:
        """The frames that are complete now; read all of them before the next call. Raises LinkViolation."""
        self._buffer += data
        at = 0
        try:
            while (end := self._end_of_frame(at)) is not None:
                _, kind, channel = _HEAD.unpack_from(self._buffer, at)
                payload = bytes(memoryview(self._buffer)[at + _HEAD.size : end])
                at = end
                yield Frame(FrameKind(kind), channel, payload)
        finally:
            del self._buffer[:at]

    def _end_of_frame(self, at: int) -> int | None:
        """Where the frame that begins at ``at`` ends; None while it is not complete. Its head is judged at once."""
        if len(self._buffer) < at + _HEAD.size:
            return None
        length, kind, _ = _HEAD.unpack_from(self._buffer, at)
        limit = self.accepts.get(kind)
        if limit is None:
            raise LinkViolation(f"a frame of kind {kind} is not allowed here")
        if length > limit:
            raise LinkViolation(f"a frame {FrameKind(kind).name} of {length} bytes is over its limit of {limit}")
        end = at + _HEAD.size + int(length)
        return end if end <= len(self._buffer) else None
