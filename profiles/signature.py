"""Signatures: SHA-256 over one canonical encoding of a profile's parts, the same bytes on every machine and Python.

The encoding is length-prefixed and therefore injective: two different inputs never share their bytes. It depends on no
serialisation library, so that a signature in a status report or a state file keeps its meaning across upgrades.

- ``None`` is ``n``;
- a text is ``s<length>:<bytes>``, the length in decimal, the bytes UTF-8 (lone surrogates as ``surrogatepass`` does);
- a list is ``l<count>:<items>``.

The digest is of the list ``[tag, part, part, ...]``; the tag carries the version of this description.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256

__all__ = ["HARD_TAG", "SIGNATURE_TAG", "Encodable", "canonical", "digest"]

SIGNATURE_TAG = "profile/1"
HARD_TAG = "profile-hard/1"

Encodable = str | None | Sequence["Encodable"]


def digest(tag: str, *parts: Encodable) -> str:
    """64 hex digits that stand for ``parts`` under ``tag``."""
    return sha256(canonical((tag, *parts))).hexdigest()


def canonical(value: Encodable) -> bytes:
    """The canonical encoding of one value; see the module docstring."""
    return b"".join(_pieces(value))


def _pieces(value: Encodable) -> Iterator[bytes]:
    if value is None:
        yield b"n"
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        yield b"s%d:" % len(data)
        yield data
    else:
        yield b"l%d:" % len(value)
        for item in value:
            yield from _pieces(item)
