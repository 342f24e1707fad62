"""How much the peers of the control socket may make the supervisor hold: each of them, and all together."""

import msgspec

from wire.units import ByteCount, Seconds


class ControlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one peer, and all peers together, may make the supervisor hold."""

    max_connections: int = 512
    max_frame_bytes: ByteCount = ByteCount(8 * 1024 * 1024)
    max_requests: int = 64
    """Requests of one connection in flight; further ones are not read until one has ended."""
    max_tasks: int = 256
    """Subscriptions and other tasks of one connection that outlive the request which started them."""
    max_refused: int = 100
    """Lines in a row which are no request; one more ends the connection."""
    input_bytes: ByteCount = ByteCount(64 * 1024 * 1024)
    """All connections' unfinished lines and requests in flight, beyond the first 64 KiB of each."""
    out_buffer_bytes: ByteCount = ByteCount(256 * 1024)
    """Bytes that wait for one peer; its requests wait when there are more."""
    output_bytes: ByteCount = ByteCount(256 * 1024 * 1024)
    """What waits for all peers, answers of requests that wait included, beyond ``out_buffer_bytes`` of each."""
    write_stall: Seconds = Seconds(30)
    """A peer that takes no byte for this long, while some wait for it, is cut off."""
    flush_grace: Seconds = Seconds(1)
    """How long the last words of a closing connection may take."""
