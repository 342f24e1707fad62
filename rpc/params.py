"""Parameters of native requests, checked where a dialect itself is the one that takes them."""

from typing import TypeVar

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY

P = TypeVar("P")


def decode_params(raw: msgspec.Raw, kind: type[P]) -> P:
    """The parameters as their struct; none at all count as ``{}``. Raises UsageError with what is wrong where."""
    try:
        return msgspec.json.decode(b"{}" if bytes(raw) in (b"", bytes(EMPTY)) else raw, type=kind)
    except DECODE_ERRORS as exc:
        raise UsageError(f"the parameters are not understood: {exc}", worker_code="invalid_params") from exc
