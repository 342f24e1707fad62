"""How much one WebSocket may cost, and the times of the protocol."""

import msgspec

from wire.units import ByteCount, Seconds

__all__ = ["SocketLimits"]


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is not set with the rest of the port (``[http]``)."""

    connect_timeout: Seconds = Seconds(15)
    """How long a peer may take until its ``connect``."""
    first_frame_bytes: ByteCount = ByteCount(64 * 1024)
    """The largest ``connect``."""
    buffered_bytes: ByteCount = ByteCount(1024 * 1024)
    """What may wait for one peer; then events that may be dropped are, and any other ends the connection."""
    output_bytes: ByteCount = ByteCount(256 * 1024 * 1024)
    """What may wait for all peers, beyond the first 256 KiB of each."""
    max_requests: int = 256
    """Requests of one connection that have no last answer yet."""
    max_refused: int = 100
    """Frames in a row that are no request; one more ends the connection."""
    tick: Seconds = Seconds(30)
    """A sign of life is sent so often."""
