"""A worker made of memory: what it says, when it closes which pipe and how it ends is up to the test."""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from errors import WorkerExited
from rpc.transport import Abort, ExitStatus, ProcessFacts
from wire.redaction import SecretMask


class MemoryTransport:
    """Implements ``rpc.transport.Transport``; the worker's side are the methods that no protocol names."""

    def __init__(self, *, stdin_capacity: int = 1 << 30) -> None:
        self.written = bytearray()
        self.stderr = ""
        self.reads = 0
        self._unread_input = 0
        self._capacity = stdin_capacity
        self._output: deque[bytes] = deque()
        self._output_closed = False
        self._interrupts = 0
        self._input_closed = False
        self._status: ExitStatus | None = None
        self._is_dead = False
        self._changed = trio.lowlevel.ParkingLot()
        self._lines_taken = 0

    # the client's side

    async def wait_readable(self) -> None:
        interrupts = self._interrupts
        await trio.lowlevel.checkpoint()
        while not (self._output or self._output_closed or self._interrupts > interrupts):
            await self._changed.park()

    def interrupt(self) -> None:
        self._interrupts += 1
        self._changed.unpark_all()

    def receive_nowait(self) -> bytes | None:
        return self._take()

    def _take(self) -> bytes | None:
        if self._output:
            self.reads += 1
            return self._output.popleft()
        return b"" if self._output_closed else None

    def send_nowait(self, data: bytes | memoryview) -> int:
        if self._input_closed:
            raise WorkerExited("stdin is closed")
        taken = min(len(data), self._capacity - self._unread_input)
        self.written += bytes(data[:taken])
        self._unread_input += taken
        self._changed.unpark_all()
        return taken

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._input_closed and self._unread_input >= self._capacity:
            await self._changed.park()

    async def wait_exit(self) -> ExitStatus:
        while self._status is None:
            await self._changed.park()
        return self._status

    def has_ended(self) -> bool:
        return self._is_dead

    def stderr_tail(self) -> str:
        return self.stderr

    # the worker's side

    def say(self, *objects: Any) -> None:
        """Print objects, one a line, in one piece."""
        self.print(b"".join(msgspec.json.encode(thing) + b"\n" for thing in objects))

    def print(self, data: bytes) -> None:
        """Print bytes, as one piece of the stream."""
        self._output.append(data)
        self._changed.unpark_all()

    def read_input(self, size: int) -> None:
        """Make room in the worker's stdin."""
        self._unread_input -= size
        self._changed.unpark_all()

    def close_output(self) -> None:
        self._output_closed = True
        self._changed.unpark_all()

    def close_input(self) -> None:
        self._input_closed = True
        self._changed.unpark_all()

    def die(self) -> None:
        """Be dead, of which nobody is told until ``exit``."""
        self._is_dead = True

    def exit(self, code: int | None = None, signal: int | None = None, reason: str = "") -> None:
        """End; stdout stays open, as a grandchild would hold it."""
        self._is_dead = True
        self._status = ExitStatus(code, signal, reason)
        self._changed.unpark_all()

    async def next_request(self) -> dict[str, Any]:
        """The next whole line that was written to the worker, but for the first question of the native dialect."""
        while True:
            while self.written.count(b"\n") <= self._lines_taken:
                await self._changed.park()
            line = self.written.split(b"\n")[self._lines_taken]
            self._lines_taken += 1
            request: dict[str, Any] = msgspec.json.decode(line)
            if request.get("id") != "ready?":
                return request


class MemoryProcess(MemoryTransport):
    """Implements ``rpc.transport.NodeProcess``, as of a worker on the node ``far``."""

    node = "far"
    pid = 7
    ended_in_order = False

    def __init__(self) -> None:
        super().__init__()
        self.end_reason: str | None = None
        self.mask = SecretMask()
        self.transcripts: list[str | None] = []
        """Those that it was given, in that order."""
        self.has_transcripts = True

    def facts(self) -> ProcessFacts:
        return ProcessFacts()

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """It writes none."""

    async def keep(self, transcript: str | None) -> None:
        await trio.lowlevel.checkpoint()
        self.transcripts.append(transcript)

    async def prepare_resume(self, transcript: str) -> bool:
        await self.keep(transcript)
        return self.has_transcripts

    async def fetch(self, path: str, limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return f"{path}"[:limit].encode()

    async def stop(self, *, abort: Abort | None = None, force: bool = False) -> ExitStatus:  # noqa: ARG002 - the interface's
        self.exit()
        return await self.wait_exit()
