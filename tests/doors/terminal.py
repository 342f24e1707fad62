"""A terminal, or a file, as a view writes to it."""

from tests.wire.terminals import Terminal

__all__ = ["Terminal"]
