"""What may be written to a terminal: no control codes, no line wider than it is; and styles, where they are wanted."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = [
    "BOLD",
    "DIM",
    "GREEN",
    "PLAIN",
    "RED",
    "can_style",
    "cells",
    "clean",
    "clean_stream",
    "fit",
    "span",
    "wants_styles",
]

DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
RED, GREEN = "\x1b[31m", "\x1b[32m"

_KEPT_CONTROLS = "\n\t"
_UNSEEN = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""What shows nothing, or turns the order of what does. Joiners (U+200C, U+200D) and variation selectors are not among
these: emoji and some scripts are written with them."""
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in _KEPT_CONTROLS}


def can_style(env: Mapping[str, str]) -> bool:
    """Whether the terminal of this environment understands more than text."""
    return env.get("TERM") != "dumb"


def wants_styles(env: Mapping[str, str]) -> bool:
    """Whether to style what a terminal is shown: it can, and nobody has asked for plain text (``NO_COLOR``)."""
    return can_style(env) and not env.get("NO_COLOR")


def clean(value: Any) -> str:
    """One line of printable text, whatever comes in: what cannot be printed is shown as an escape. None is a dash."""
    if value is None:
        return "-"
    text = str(value)
    return text if text.isprintable() else "".join(ch if ch.isprintable() else _escape(ch) for ch in text)


def clean_stream(text: str) -> str:
    """Running text for a terminal: line ends and tabs stay, other control codes go, what is invisible is escaped."""
    text = text.translate(_CONTROLS)
    return text if text.isascii() else _UNSEEN.sub(lambda found: _escape(found[0]), text)


def cells(text: str) -> int:
    """Columns that a text without control codes takes, or a few more: what joins with its neighbour counts too."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def fit(text: str, columns: int) -> str:
    """The text in at most so many columns; what is cut off is marked."""
    if columns <= 0:
        return ""
    if len(text) * 2 <= columns or cells(text) <= columns:
        return text
    left = columns - 1
    for count, ch in enumerate(text):
        left -= _cells_of(ch)
        if left < 0:
            return f"{text[:count].rstrip()}…"
    return text


def span(seconds: float | None) -> str:
    """A span of time in at most six characters: ``0.3 ms``, ``4.2 s``, ``2m10s``, ``1h05m``, ``3d04h``."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def _cells_of(ch: str) -> int:
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1


def _escape(ch: str) -> str:
    return " " if ch in "\n\t" else ch.encode("unicode_escape").decode()
