"""Single keys of a terminal: read as they are pressed, without being shown, and the terminal as it was at the end."""

import contextlib
import os
import select
import termios
import tty
from collections.abc import Iterator

__all__ = ["keys_of", "wait_for_key"]

_MOST = 64


@contextlib.contextmanager
def keys_of(terminal: int) -> Iterator[None]:
    """While it is entered, keys come one by one; Ctrl-C still interrupts."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def wait_for_key(terminal: int, seconds: float) -> str:
    """The keys that are pressed within the time; none where there was none. Raises EOFError: the terminal is gone."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, seconds))
    if not ready:
        return ""
    pressed = os.read(terminal, _MOST)
    if not pressed:
        raise EOFError
    return pressed.decode(errors="replace")
