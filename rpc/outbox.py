"""The one writer to a worker's stdin: straight from the caller when nothing waits, else in order through a queue."""

from collections import deque

import trio

from errors import WorkerExited
from rpc.exchange import Exchange
from rpc.transport import Transport

__all__ = ["Outbox"]


class Outbox:
    """Lines on their way to one worker; a line that was begun is finished before the next one starts.

    ``put`` never waits: the bound of ``limit`` bytes is kept by callers who ``wait_room`` first, so that one line may
    stand above it, whatever its size. A worker that does not read stalls only those who have something to say to it.
    """

    def __init__(self, transport: Transport, limit: int) -> None:
        self._transport = transport
        self._limit = limit
        self._queue: deque[tuple[memoryview, Exchange | None]] = deque()
        self._filled = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self.queued_bytes = 0
        self.bytes_out = 0

    def put(self, line: bytes, exchange: Exchange | None = None) -> None:
        """Write a whole line, or as much as fits now and the rest as soon as the worker reads."""
        if not self._queue:
            taken = self._write(line, exchange)
            if taken == len(line):
                return
        else:
            taken = 0
        self._queue.append((memoryview(line)[taken:], exchange))
        self.queued_bytes += len(line) - taken
        self._filled.unpark()

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
                await self._filled.park()
            await self._transport.wait_writable()
            self._flush()
            if self.has_room:
                self._room.unpark_all()

    def close(self) -> None:
        """Drop what was not written and let everyone go."""
        self._queue.clear()
        self.queued_bytes = 0
        self._room.unpark_all()

    def _write(self, line: bytes, exchange: Exchange | None) -> int:
        try:
            taken = self._transport.send_nowait(line)
        except WorkerExited:
            return 0  # the line is queued; the writer task meets the same closed pipe and reports it
        self._account(taken, exchange)
        return taken

    def _flush(self) -> None:
        while self._queue:
            line, exchange = self._queue[0]
            taken = self._transport.send_nowait(line)
            self._account(taken, exchange)
            self.queued_bytes -= taken
            if taken < len(line):
                self._queue[0] = (line[taken:], exchange)
                return
            self._queue.popleft()

    def _account(self, taken: int, exchange: Exchange | None) -> None:
        self.bytes_out += taken
        if taken and exchange is not None:
            exchange.sent = True
