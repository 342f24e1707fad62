"""The end of a thread that writes what others say: waited for as long as it gets on, and not for who does not read."""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["wait_for_last_words"]

_LOOK_SECONDS = 0.05
_PATIENCE = 20
"""So many looks that find the thread inside a write: together a second. One that has only had no turn is waited for."""


def wait_for_last_words(thread: threading.Thread, lines: queue.Queue[Any], is_writing: Callable[[], bool]) -> None:
    """Put None behind the last of ``lines``, at which ``thread`` ends; give up where a write of its does not end."""
    patience = _PATIENCE
    is_told = False
    while thread.is_alive() and patience:
        if not is_told:
            with suppress(queue.Full):
                lines.put_nowait(None)
                is_told = True
        thread.join(_LOOK_SECONDS)
        patience -= is_writing()
