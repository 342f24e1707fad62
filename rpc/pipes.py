"""Non-blocking pipes to a worker, and the one writer to its stdin: directly while nothing waits, else in order."""

import array
import fcntl
import os
import termios
from collections import deque

import trio

from errors import WorkerExited
from rpc.requests import RpcRequest
from rpc.transport import Transport

_CHUNK_BYTES = 64 * 1024  # a default pipe holds no more, and larger buffers leave malloc's cheap range


class Pipe:
    """A non-blocking file descriptor that belongs to us until ``close``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._fd < 0

    def read_nowait(self, size: int = _CHUNK_BYTES) -> bytes | None:
        """What lies ready, ``b""`` at the end of the stream (or after ``close``), None when there is nothing now."""
        if self._fd < 0:
            return b""
        try:
            return os.read(self._fd, size)
        except BlockingIOError:
            return None

    def write_nowait(self, data: bytes | memoryview) -> int:
        """Write what fits. Raises BrokenPipeError when the other end is closed, also after ``close``."""
        if self._fd < 0:
            raise BrokenPipeError
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    async def wait_readable(self) -> None:
        """Wait until ``read_nowait`` has something to say; ``interrupt`` and ``close`` end the wait."""
        if self._fd < 0:
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.wait_readable(self._fd)
        except trio.ClosedResourceError:
            return  # closed or interrupted while waiting: the next read says which

    async def wait_writable(self) -> None:
        """Wait until ``write_nowait`` takes something or fails; ``interrupt`` and ``close`` end the wait."""
        if self._fd < 0:
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.wait_writable(self._fd)
        except trio.ClosedResourceError:
            return  # as above

    def interrupt(self) -> None:
        """End all waiting for it now."""
        if not self.is_closed:
            trio.lowlevel.notify_closing(self._fd)

    def read_rest(self) -> bytes:
        """What lies in the pipe at this moment: bounded by its size, even if writing goes on."""
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


class StdinQueue:
    """Lines on their way to one worker; a line that was begun is finished before the next one starts.

    ``put`` never waits: the bound of ``limit`` bytes is kept by callers who ``wait_room`` first, so that one line may
    stand above it, whatever its size. A worker that does not read stalls only those who have something to say to it.
    """

    def __init__(self, transport: Transport, limit: int) -> None:
        self._transport = transport
        self._limit = limit
        self._queue: deque[tuple[memoryview, RpcRequest | None]] = deque()
        self._not_empty = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self.queued_bytes = 0
        self.bytes_out = 0

    def put(self, line: bytes, request: RpcRequest | None = None) -> None:
        """Write a whole line, or as much as fits now and the rest as soon as the worker reads."""
        taken = 0
        if not self._queue:
            try:
                taken = self._transport.send_nowait(line)
            except WorkerExited:
                taken = 0  # it is queued; the writer task meets the same closed pipe and reports it
            self._record_sent(taken, request)
            if taken == len(line):
                return
        self._queue.append((memoryview(line)[taken:], request))
        self.queued_bytes += len(line) - taken
        self._not_empty.unpark()

    @property
    def has_room(self) -> bool:
        """Whether the next caller may put a line without waiting."""
        return self.queued_bytes < self._limit

    async def wait_room(self) -> None:
        """Wait until the queue is below its limit or closed."""
        while not self.has_room:
            await self._room.park()

    async def run(self) -> None:
        """Flush the queue until cancelled. Raises WorkerExited when the worker's stdin is closed."""
        while True:
            while not self._queue:
                await self._not_empty.park()
            await self._transport.wait_writable()
            self._flush()
            if self.has_room:
                self._room.unpark_all()

    def close(self) -> None:
        """Drop what was not written and end all waiting."""
        self._queue.clear()
        self.queued_bytes = 0
        self._room.unpark_all()

    def _flush(self) -> None:
        while self._queue:
            line, request = self._queue[0]
            taken = self._transport.send_nowait(line)
            self._record_sent(taken, request)
            self.queued_bytes -= taken
            if taken < len(line):
                self._queue[0] = (line[taken:], request)
                return
            self._queue.popleft()

    def _record_sent(self, taken: int, request: RpcRequest | None) -> None:
        self.bytes_out += taken
        if taken and request is not None:
            request.sent = True
