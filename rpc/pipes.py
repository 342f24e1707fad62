"""Our end of one pipe to a worker: reading and writing without blocking, closing without surprising a waiting task."""

import array
import fcntl
import os
import termios
from collections.abc import Awaitable, Callable

import trio

__all__ = ["Pipe"]

_CHUNK = 64 * 1024  # a default pipe holds no more, and larger buffers leave malloc's cheap range


class Pipe:
    """A non-blocking file descriptor that belongs to us until ``close``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._fd < 0

    def read_nowait(self, size: int = _CHUNK) -> bytes | None:
        """What lies ready, ``b""`` at the end of the stream (or after ``close``), None when there is nothing now."""
        if self.is_closed:
            return b""
        try:
            return os.read(self._fd, size)
        except BlockingIOError:
            return None

    def write_nowait(self, data: bytes | memoryview) -> int:
        """Write what fits. Raises BrokenPipeError when nobody will ever read it, also after ``close``."""
        if self.is_closed:
            raise BrokenPipeError
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    async def wait_readable(self) -> None:
        """Wait until ``read_nowait`` has something to say; ``close`` ends the wait."""
        await self._wait(trio.lowlevel.wait_readable)

    async def wait_writable(self) -> None:
        """Wait until ``write_nowait`` takes something or fails; ``close`` ends the wait."""
        await self._wait(trio.lowlevel.wait_writable)

    async def _wait(self, ready: Callable[[int], Awaitable[None]]) -> None:
        if self.is_closed:
            await trio.lowlevel.checkpoint()
            return
        try:
            await ready(self._fd)
        except trio.ClosedResourceError:
            return  # closed while waiting: the next read or write tells so

    def read_rest(self) -> bytes:
        """What lies in the pipe at this moment: bounded by its size, even if somebody goes on writing."""
        if self.is_closed:
            return b""
        available = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, available)
        wanted = available[0]
        chunks = []
        while wanted > 0 and (chunk := self.read_nowait(wanted)):
            chunks.append(chunk)
            wanted -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Close our end, once; tasks that wait on it wake up."""
        if not self.is_closed:
            fd, self._fd = self._fd, -1
            trio.lowlevel.notify_closing(fd)
            os.close(fd)
