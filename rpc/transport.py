"""The seam between a client and its worker: bytes in, bytes out, one exit.

A local process is one implementation (``rpc.process``), a pair of memory buffers in tests another; a worker on another
machine can be a third. Nothing above this line may assume that the worker is local.
"""

from typing import Protocol

import msgspec

__all__ = ["ExitStatus", "Transport"]


class ExitStatus(msgspec.Struct, frozen=True):
    """How a worker ended: an exit code, or the number of the signal that killed it; both None when unknown."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def from_returncode(cls, returncode: int) -> "ExitStatus":
        """Read the convention of ``subprocess``: negative numbers are signals."""
        return cls(signal=-returncode) if returncode < 0 else cls(code=returncode)

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return "ended" if self.code is None else f"exited with code {self.code}"


class Transport(Protocol):
    """One worker's byte streams. All methods belong to the event loop's thread."""

    async def receive(self) -> bytes:
        """Wait for output; ``b""`` once the worker's stdout is closed."""
        ...

    def receive_nowait(self) -> bytes | None:
        """What lies ready, ``b""`` at the end of the stream, None when there is nothing now."""
        ...

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Write as much as fits without waiting; the number of bytes taken. Raises WorkerExited on a closed pipe."""
        ...

    async def wait_writable(self) -> None:
        """Wait until ``send_nowait`` would take at least one byte (or would fail)."""
        ...

    async def wait_exit(self) -> ExitStatus:
        """Wait for the worker's end. May be awaited by any number of tasks, also after the end."""
        ...

    def has_ended(self) -> bool:
        """Whether the worker has ended, though ``wait_exit`` may still have to tell so."""
        ...

    def stderr_tail(self) -> str:
        """The last text the worker wrote to stderr, at most 64 KiB."""
        ...
