"""What programs with one poll loop share: which descriptors are polled, writing, and the end by a signal."""

import select
import sys
from collections import deque
from collections.abc import Callable
from typing import NoReturn

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def exit_on_signal(number: int, _frame: object) -> NoReturn:
    """Agents exit with such a code of their own, and are not killed by the signal."""
    sys.exit(128 + number)


class PollSet:
    """The descriptors of a loop. Setting the same events again costs nothing."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._registered: dict[int, int] = {}

    def set_events(self, fd: int, events: int | None) -> None:
        """Poll for these events; None = do not poll ``fd``."""
        if self._registered.get(fd) == events:
            return
        if events is None:
            self._poll.unregister(fd)
            del self._registered[fd]
        else:
            self._poll.register(fd, events)
            self._registered[fd] = events

    def wait(self, patience_ms: int | None = None) -> list[tuple[int, int]]:
        """What is ready, as descriptors and events; empty when the time is up."""
        return self._poll.poll(patience_ms)


def write_available(waiting: deque[bytes], write: Callable[[bytes | memoryview], int]) -> int:
    """Write as much as is taken now; how much that is."""
    written = 0
    try:
        while waiting:
            taken = write(waiting[0])
            written += taken
            if taken < len(waiting[0]):
                waiting[0] = waiting[0][taken:]
            else:
                waiting.popleft()
    except BlockingIOError:
        pass
    return written
