"""The agent's stderr on this process's own, without waiting: lines that are not read are left out, with a note."""

import os
import select

from wire.terminal import clean_stream

__all__ = ["Stderr"]

_MOST_WAITING = 256 * 1024
_LEFT_OUT = b"[lines of the agent's stderr were left out: they were not read]\n"


class Stderr:
    """Writes to ``fd`` as much as it takes without blocking; at most 256 KiB and one piece more wait."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._waiting = b""
        self._left_out = self._is_closed = False

    @property
    def waits(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._waiting)

    def add(self, words: str) -> None:
        """Take whole lines, and write what can be written now."""
        if self._is_closed:
            return
        if len(self._waiting) > _MOST_WAITING:
            self._left_out = True
            return
        self._waiting += (_LEFT_OUT if self._left_out else b"") + clean_stream(words).encode()
        self._left_out = False
        self.write()

    def write(self) -> None:
        """Write for as long as that does not wait: a pipe that is ready takes ``PIPE_BUF`` bytes at once."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        try:
            while self._waiting and poll.poll(0):
                self._waiting = self._waiting[os.write(self.fd, self._waiting[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return  # stdout is the same file, and does not wait either
        except OSError:  # its reader has left
            self._waiting, self._is_closed = b"", True
