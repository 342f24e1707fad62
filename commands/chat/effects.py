"""What the machine of ``pool chat`` asks its screen to do."""

from typing import Any, Literal

import msgspec

Style = Literal["plain", "dim", "bold", "warn", "bad"]


class Line(msgspec.Struct, frozen=True):
    """Print a line. ``is_whole``: not cut to the terminal's width, since it is to be copied or read in full.

    Of any other one ``text`` is cut first, ``end`` only where there is no room for both.
    """

    text: str
    style: Style = "plain"
    is_whole: bool = False
    end: str = ""


class Markdown(msgspec.Struct, frozen=True):
    """Print a block of an answer."""

    text: str


class CallText(msgspec.Struct, frozen=True):
    """Print a page of a tool call, in the colours of its parts. ``page``: a ``CallPage``."""

    page: Any


class Request(msgspec.Struct, frozen=True):
    """Call a method of the supervisor; its result, or its error, comes back as ``answered(purpose, ...)``.

    ``is_ordered``: after all ordered requests before it.
    """

    purpose: str
    method: str
    params: dict[str, Any]
    is_ordered: bool = False
    subject: str = ""
    """The id of the call that it is about."""
    typed: str = ""
    """What was typed for it, to be given back where it cannot be sent."""
    known: int = 0
    """How many changes of the session's state were known when its state was asked for."""


class GiveBack(msgspec.Struct, frozen=True):
    """Put a text that could not be sent back into the input."""

    text: str


class Leave(msgspec.Struct, frozen=True):
    """End the chat with this exit code."""

    code: int = 0


Effect = Line | Markdown | CallText | Request | GiveBack | Leave
