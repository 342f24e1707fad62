"""One end of a link: frames over a wire, and the credit that keeps a flood on one channel from slowing the others."""

from collections.abc import Callable
from contextlib import closing

import msgspec
import trio

from cluster.frames import (
    FROM_STRANGER,
    NODE_CHANNEL,
    Frame,
    FrameDecoder,
    FrameKind,
    Limits,
    LinkViolation,
    encode_frame,
)
from cluster.messages import message_frame
from cluster.wire import LinkWire, WireClosed
from errors import unwrap_exception_groups

WINDOW_BYTES = 512 * 1024
"""Bytes of one channel's stream, in one direction, that may be under way and not consumed."""
CREDIT_STEP = WINDOW_BYTES // 8
"""Bytes that are consumed before credit for them is sent."""
MAX_UNREAD_REPLIES = 20_000
"""Replies that may wait for a peer to read them: one that sends without reading would make this end hold them all."""
_READS_AT_ONCE = 16  # that find something, before others have their turn


class CreditWindow:
    """What one channel may still send of a stream. A sender waits for any room; its piece may be larger than that."""

    def __init__(self, size: int = WINDOW_BYTES) -> None:
        self.left = self._size = size
        self._is_unlimited = False
        self._room = trio.lowlevel.ParkingLot()

    @property
    def has_room(self) -> bool:
        """Whether something may be sent now."""
        return self.left > 0 or self._is_unlimited

    def take(self, count: int) -> None:
        """``count`` bytes are sent."""
        self.left -= count

    def give(self, count: int) -> None:
        """The other end has consumed ``count`` bytes. Raises LinkViolation for more than it was sent."""
        self.left += count
        if self.left > self._size:
            raise LinkViolation("credit was given for more than was sent")
        if self.has_room:
            self._room.unpark_all()

    def lift(self) -> None:
        """There is no limit any more: what is left to be said is little, and the last."""
        self._is_unlimited = True
        self._room.unpark_all()

    async def wait_room(self) -> None:
        """Wait until something may be sent."""
        while not self.has_room:
            await self._room.park()


class Link:
    """Frames both ways. ``send`` never waits; what it may send is limited by the windows of the channels."""

    def __init__(self, wire: LinkWire) -> None:
        self._wire = wire
        self._decoder = FrameDecoder(FROM_STRANGER)
        self._replies = self._replies_from = 0

    def send(self, kind: FrameKind, channel: int, payload: bytes = b"") -> None:
        """Send plain bytes."""
        self._wire.send(encode_frame(kind, channel, payload))

    def send_message(self, kind: FrameKind, message: msgspec.Struct, channel: int = NODE_CHANNEL) -> None:
        """Send a message."""
        self._wire.send(message_frame(kind, channel, message))

    def reply(self, kind: FrameKind, message: msgspec.Struct, channel: int = NODE_CHANNEL) -> None:
        """Send what a frame of the peer has asked for. Raises LinkViolation where it sends and does not read."""
        wire = self._wire
        if wire.sent_bytes - wire.queued_bytes >= self._replies_from:  # all that was sent up to then was taken
            self._replies, self._replies_from = 0, wire.sent_bytes
        self._replies += 1
        if self._replies > MAX_UNREAD_REPLIES:
            raise LinkViolation("it does not read the answers to what it sends")
        self.send_message(kind, message, channel)

    async def receive_first(self, accepts: Limits, seconds: float) -> Frame:
        """The first frame of the other end. Raises WireClosed, also where it does not come in time; LinkViolation."""
        self._decoder.accepts = accepts
        with trio.move_on_after(seconds):
            while True:
                with closing(self._decoder.feed(await self._wire.receive())) as frames:
                    for frame in frames:
                        return frame  # what follows it stays in the decoder
        raise WireClosed(f"nothing was said within {seconds:g} s")

    async def run(self, accepts: Limits, silence: float, on_frame: Callable[[Frame], None]) -> None:
        """Read and write until cancelled; each frame is handled in the step that reads it.

        Raises WireClosed when the link has ended, also after ``silence`` seconds without a byte; LinkViolation.
        """
        self._decoder.accepts = accepts
        with unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._wire.run_writer)
                data, reads = b"", 0
                while True:
                    for frame in self._decoder.feed(data):
                        on_frame(frame)
                    data = b""
                    with trio.move_on_after(silence):
                        data = await self._wire.receive()
                    if not data:
                        raise WireClosed(f"silent for {silence:g} s")
                    reads += 1
                    if reads % _READS_AT_ONCE == 0:  # a wire that always has something waits for nothing
                        await trio.lowlevel.checkpoint()

    def close(self, reason: str = "closed") -> None:
        """Close the wire; ``run`` raises WireClosed with that reason."""
        self._wire.close(reason)
