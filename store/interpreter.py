"""How a process whose event loop is busy lets the store's writer have the interpreter."""

import sys

__all__ = ["share_interpreter"]

_SWITCH_SECONDS = 50e-6
"""Shorter than a round of a busy event loop.

A round lets go of the interpreter for a moment, too short for a thread that has to wake up first, which then begins to
wait anew. With Python's own 5 ms the writer, who needs it a dozen times for a commit, can starve beside such a loop:
commits of 200 ms, some of 8 s, where they take 2 ms with this.
"""


def share_interpreter() -> None:
    """For the whole process; the application calls it, before its event loop begins."""
    sys.setswitchinterval(_SWITCH_SECONDS)
