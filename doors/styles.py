"""The terminal's styles as they are written among text, and whether somebody wants to see them."""

from collections.abc import Mapping

__all__ = ["BOLD", "DIM", "GREEN", "PLAIN", "RED", "YELLOW", "can_style", "wants_styles"]

DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


def can_style(env: Mapping[str, str]) -> bool:
    """Whether the terminal of this environment understands more than text."""
    return env.get("TERM") != "dumb"


def wants_styles(env: Mapping[str, str]) -> bool:
    """Whether to style what a terminal is shown: it can, and nobody has asked for plain text (``NO_COLOR``)."""
    return can_style(env) and not env.get("NO_COLOR")
