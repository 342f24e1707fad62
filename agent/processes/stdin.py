"""What is said to a command: written as far as it reads, never longer than a few seconds."""

import os

import trio

__all__ = ["InputClosed", "Stdin"]

_PATIENCE = 5.0
"""Seconds that a command may take to read what is written to it."""
_END_OF_TRANSMISSION = b"\x04"


class InputClosed(Exception):
    """The command takes no input; the message says why."""


class Stdin:
    """The input of one command. ``is_terminal``: the descriptor is that of the output, and is closed with it."""

    def __init__(
        self, descriptor: int | None, *, is_terminal: bool, why: str = "the command was started without an input"
    ) -> None:
        """``why``: the error for writers where there is no descriptor."""
        self._descriptor = descriptor
        self.is_terminal = is_terminal
        self._why = why
        self._lock = trio.Lock()

    async def write(self, data: bytes) -> int:
        """Write, one caller after the other; how many bytes the command took in time. Raises InputClosed."""
        written = 0
        with trio.move_on_after(_PATIENCE):
            async with self._lock:
                while written < len(data):
                    written += await self._write_some(data[written:])
        return written

    async def end(self) -> None:
        """Say that nothing more will come. Raises InputClosed."""
        if self.is_terminal:
            await self.write(_END_OF_TRANSMISSION)
        elif self._descriptor is None:
            raise InputClosed(self._why)
        else:
            self.close("its input was ended")

    def close(self, why: str) -> None:
        """Close it; a writer that waits is told ``why``. Harmless when repeated."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        self._why = why
        if not self.is_terminal:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)

    async def _write_some(self, data: bytes) -> int:
        if self._descriptor is None:
            raise InputClosed(self._why)
        try:
            await trio.lowlevel.wait_writable(self._descriptor)
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            self.close("the command has closed its input")
            raise InputClosed(self._why) from exc
        except trio.ClosedResourceError as exc:
            raise InputClosed(self._why) from exc
