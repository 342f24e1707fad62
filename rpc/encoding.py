"""What we write to a worker as parameters: always one JSON object on one line, whatever a caller hands in."""

from typing import Any

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["encode_params"]

_encode = msgspec.json.Encoder().encode
NO_PARAMS = msgspec.Raw(b"{}")


def encode_params(method: str, params: Any) -> msgspec.Raw:
    """Encode parameters; ``None`` is ``{}``. Raw JSON, also inside, is checked and brought to one line.

    Raises UsageError for what is no JSON object: a worker's program may die of a bare ``null``.
    """
    if params is None:
        return NO_PARAMS
    try:
        encoded = _encode(params)
        if isinstance(params, msgspec.Raw) or b"\n" in encoded:
            encoded = _encode(msgspec.json.decode(encoded))
    except (TypeError, ValueError, OverflowError, *DECODE_ERRORS) as exc:
        raise UsageError(f"the parameters of {method} cannot be written as JSON: {exc}") from exc
    if not encoded.startswith(b"{"):
        raise UsageError(f"the parameters of {method} are no JSON object but {encoded[:40]!r}")
    return msgspec.Raw(encoded)
