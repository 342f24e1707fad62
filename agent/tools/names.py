r"""File names as a model can read them and give them back, whatever bytes they hold.

Undecodable bytes, line ends, other controls and invisible characters become ``\xNN``, byte by byte; a path that does
not exist as given is tried with these undone. Standard library only: the search child uses it too.
"""

import os
import re

_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def escape_name(name: str) -> str:
    """A name or path (as ``os`` gives it, undecodable bytes as lone surrogates) in printable characters."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else _escape_char(char) for char in name)


def _escape_char(char: str) -> str:
    try:
        data = os.fsencode(char)
    except UnicodeEncodeError:  # half of a surrogate pair: no file system gave this
        data = char.encode(errors="surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def unescape_name(name: str) -> str | None:
    """The name that ``escape_name`` may have made ``name`` of; None when there is nothing to undo."""
    pieces = _ESCAPED.split(name)
    if len(pieces) == 1:
        return None
    data = b"".join(
        bytes.fromhex(piece) if index % 2 else piece.encode(errors="surrogateescape")
        for index, piece in enumerate(pieces)
    )
    return os.fsdecode(data)
