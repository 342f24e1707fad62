"""A terminal, or a file, as a view writes to it."""

import io


class Terminal(io.StringIO):
    """Text that counts its flushes and may say that it is a terminal."""

    def __init__(self, *, tty: bool = False) -> None:
        super().__init__()
        self.tty = tty
        self.flushes = 0

    def isatty(self) -> bool:
        return self.tty

    def flush(self) -> None:
        self.flushes += 1
