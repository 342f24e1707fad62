"""JSON that is kept for a while, in no more memory than it needs. Pure."""

from typing import Any

import msgspec

__all__ = ["encode_to_keep"]

_encode = msgspec.json.Encoder().encode


def encode_to_keep(value: Any) -> bytes:
    """Encode ``value``: for what outlives the step it is made in.

    The encoder writes into a buffer that doubles as it fills, and hands that out as it is: an answer of 170 kB holds
    255 kB for as long as anybody holds the answer. A copy takes a microsecond.
    """
    return memoryview(_encode(value)).tobytes()
