"""What a renderable looks like on a terminal, and a program on one."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyte
from rich.console import Console, RenderableType

_LIMIT = 90.0
_ROWS = 24
_FAINT, _NO_LONGER_FAINT = 2, 22


def draw(view: RenderableType, width: int = 140, *, crop: bool = True) -> str:
    """The view without colours, and without spaces at the end of a line."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(view, crop=crop)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


class _Emulator(pyte.Screen):
    """What a terminal of this size shows; it answers where its cursor is."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], object]) -> None:
        super().__init__(columns, rows)
        self._stream = pyte.Stream(self)
        self._answer = answer

    def select_graphic_rendition(self, *attributes: int) -> None:
        """Also what is faint, which pyte passes over: in grey."""
        if not {38, 48} & {*attributes}:
            attributes = tuple(90 if each == _FAINT else each for each in attributes)
            if _NO_LONGER_FAINT in attributes and self.cursor.attrs.fg == "brightblack":
                attributes = (*attributes, 39)
        super().select_graphic_rendition(*attributes)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.display)


class TerminalProgram:
    """A program, its terminal, and all that it has written there."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]", columns: int, rows: int = _ROWS) -> None:
        self.master = master
        self.process = process
        self.written = ""
        self.screen = _Emulator(columns, rows, lambda answer: os.write(master, answer.encode()))

    def read_until(self, wanted: str, since: int = 0) -> str:
        """Read what it writes until ``wanted`` is there, behind the first ``since`` characters."""
        deadline = time.monotonic() + _LIMIT
        while wanted not in self.written[since:]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} was not drawn: {self.written[-2000:]}"
            self._read()
        return self.written

    def _read(self) -> None:
        text = os.read(self.master, 65536).decode(errors="replace")
        self.written += text.replace("\r\n", "\n")
        self.screen.feed(text)

    def read_until_shown(self, *wanted: str) -> str:
        """Read what it writes until the screen shows all of this."""
        deadline = time.monotonic() + _LIMIT
        while not all(text in self.screen.text for text in wanted):
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} is not shown: {self.screen.text}"
            self._read()
        return self.screen.text

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def paste(self, text: str) -> None:
        """As a terminal does that marks the ends of a paste; what the program draws meanwhile is read."""
        data = f"\x1b[200~{text}\x1b[201~".replace("\n", "\r").encode()
        os.set_blocking(self.master, False)
        while data:
            readable, writable, _ = select.select([self.master], [self.master], [], _LIMIT)
            if readable:
                self._read()
            if writable:
                data = data[os.write(self.master, data[:4096]) :]
        os.set_blocking(self.master, True)


@contextmanager
def on_a_terminal(
    command: Sequence[str], columns: int = 80, rows: int = _ROWS, **env: str
) -> Iterator[TerminalProgram]:
    """It leaves the terminal as it was, and is killed at the end of the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(slave)
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **env}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=env)
    try:
        yield TerminalProgram(master, process, columns, rows)
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
