"""What a renderable looks like on a terminal, and a program on one."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType

_LIMIT = 90.0


def draw(view: RenderableType, width: int = 140, *, crop: bool = True) -> str:
    """The view without colours, and without spaces at the end of a line."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(view, crop=crop)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


class TerminalProgram:
    """A program, its terminal, and all that it has written there."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self.master = master
        self.process = process
        self.written = ""

    def read_until(self, wanted: str, since: int = 0) -> str:
        """Read what it writes until ``wanted`` is there, behind the first ``since`` characters."""
        deadline = time.monotonic() + _LIMIT
        while wanted not in self.written[since:]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} was not drawn: {self.written[-2000:]}"
            self.written += os.read(self.master, 65536).decode(errors="replace").replace("\r\n", "\n")
        return self.written

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@contextmanager
def on_a_terminal(command: Sequence[str], columns: int = 80, **env: str) -> Iterator[TerminalProgram]:
    """It leaves the terminal as it was, and is killed at the end of the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(slave)
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", **env}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=env)
    try:
        yield TerminalProgram(master, process)
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
