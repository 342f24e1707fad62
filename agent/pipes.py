"""The pipes of this process as streams that take or give what is ready at once; trio's own first let others run."""

import os

import trio

_READ_BYTES = 64 * 1024


class PipeReader(trio.abc.ReceiveStream):
    """Reads from a descriptor, which belongs to it."""

    def __init__(self, descriptor: int) -> None:
        self._stream = trio.lowlevel.FdStream(descriptor)
        self._can_wait = False
        """It was empty once: a file or /dev/null, which epoll does not take, never is."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What is there, empty at the end; always a checkpoint. Raises trio.BrokenResourceError."""
        size = max_bytes or _READ_BYTES
        data: bytes | None = None
        if not self._can_wait:
            await trio.lowlevel.checkpoint()
            data = self._read_nowait(size)
            self._can_wait = data is None
        while data is None:
            await trio.lowlevel.wait_readable(self._stream.fileno())
            data = self._read_nowait(size)
        return data

    def _read_nowait(self, size: int) -> bytes | None:
        try:
            return os.read(self._stream.fileno(), size)
        except BlockingIOError:
            return None
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Close the descriptor."""
        await self._stream.aclose()


class PipeWriter(trio.abc.SendStream):
    """Writes to a descriptor, which belongs to it."""

    def __init__(self, descriptor: int) -> None:
        self._stream = trio.lowlevel.FdStream(descriptor)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write it all; no checkpoint where it fits into the pipe. Raises trio.BrokenResourceError."""
        sent = self.send_nowait(data)
        if sent < len(data):
            await self._stream.send_all(memoryview(data)[sent:])

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what the pipe takes at once; how many bytes that were. Of a pipe that is broken ``send_all`` tells."""
        try:
            return os.write(self._stream.fileno(), data)
        except OSError:
            return 0

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room in the pipe."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the descriptor."""
        await self._stream.aclose()
