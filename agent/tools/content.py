"""Reading a file whole, with the stamp by which a later change of it is noticed."""

import os
from typing import NamedTuple

from agent.tools.base import ToolError
from agent.tools.ledger import HASHED_BYTES, Stamp, digest_of, stamp_of
from agent.tools.places import Place, open_regular

__all__ = ["Content", "encoded", "read_content", "stamp_now"]


class Content(NamedTuple):
    """A file's bytes, how it was, and its stamp."""

    data: bytes
    status: os.stat_result
    stamp: Stamp


def read_content(place: Place) -> Content:
    """All of it. Raises OSError, and ToolError for what is no file or is too large (8 MiB) to be held."""
    descriptor, status = open_regular(place)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(HASHED_BYTES + 1)
    if len(data) > HASHED_BYTES:
        raise ToolError(
            f"path: {place.asked} has more than {HASHED_BYTES} bytes, too many for this tool",
            "validation",
            recommendations=["Use exec with a program that works on streams, such as sed."],
        )
    return Content(data, status, stamp_of(status, digest_of(data)))


def stamp_now(place: Place) -> Stamp | None:
    """How the file is; None when there is none. Raises OSError, and ToolError for what is no file."""
    try:
        descriptor, status = open_regular(place)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return stamp_of(status, digest_of(file.read(HASHED_BYTES)) if status.st_size <= HASHED_BYTES else None)


def encoded(text: str, field: str) -> bytes:
    """What the model wants written; raises ToolError where that is no text, and names the field it came in."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"{field}: the character at index {exc.start} is half of a surrogate pair, which is no character",
            "validation",
        ) from exc
