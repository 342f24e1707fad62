"""A text as the name of one file: never another text's name, never more than one level, whatever the text holds."""

import hashlib

__all__ = ["file_name"]

_AS_THEY_ARE = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_LONGEST = 160
_HEAD = 80
_EMPTY = "%"


def file_name(text: str) -> str:
    """A name of lower-case ASCII, 1 to 160 characters, that only this text has.

    ``a-z0-9_-`` stay, ``:`` becomes ``+``, every other byte of the UTF-8 form ``%`` and two digits: no letter case and
    no Unicode normalisation of a file system can make two names one. What would be longer than most file systems allow
    is cut, and told apart by its SHA-256 behind a ``~``.
    """
    data = text.encode("utf-8", "surrogatepass")
    name = "".join(_written(byte) for byte in data) or _EMPTY
    return name if len(name) <= _LONGEST else f"{name[:_HEAD]}~{hashlib.sha256(data).hexdigest()}"


def _written(byte: int) -> str:
    if byte in _AS_THEY_ARE:
        return chr(byte)
    return "+" if byte == ord(":") else f"%{byte:02x}"
