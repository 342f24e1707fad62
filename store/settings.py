"""What can be set about the store; the ``[store]`` table of the settings file."""

import msgspec

from wire.units import ByteCount, Seconds

__all__ = ["StoreSettings"]


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept, and how much may wait for the disk."""

    events: int = 1_000_000
    """So many events are kept, the latest ones; at least 1."""
    events_age: Seconds = Seconds(30 * 86400)
    """Older events are deleted; 0 = whatever their age."""
    backlog: ByteCount = ByteCount(64 * 1024 * 1024)
    """Bytes that may wait to be written before workers are made to wait; while the disk refuses, the oldest events
    above it are given up."""
    stall: Seconds = Seconds(5)
    """A disk that takes longer than this over one write counts as one that refuses it."""
    retry: Seconds = Seconds(10)
    """The longest pause between attempts to write to a disk that refuses; the first one is 0.1 s."""
    close_timeout: Seconds = Seconds(10)
    """How long the last write may take when the supervisor stops."""
