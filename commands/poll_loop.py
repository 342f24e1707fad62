"""What programs with one poll loop over stdin, stdout and a socket share: which descriptors are polled, and writing."""

import select
from collections import deque
from collections.abc import Callable

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


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
