"""The terminal's styles as they are written among text, and whether somebody wants to see them."""

from wire.terminal import BOLD, DIM, GREEN, PLAIN, RED, can_style, wants_styles

__all__ = ["BOLD", "DIM", "GREEN", "PLAIN", "RED", "YELLOW", "can_style", "wants_styles"]

YELLOW = "\x1b[33m"
